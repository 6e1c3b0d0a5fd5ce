"""Compiled text read into costs: small parts by hand, and real programs of a TPU and a GPU.

The files in costs/ come from programs compiled ahead of time (TPU v5e with 4 chips or with two
slices of 4, H100 with 4), without the compiler's notes on where a line comes from;
`tpu_fusions.txt` is an excerpt, whose entry has parameters in place of what stood before it.
"""

import time
from pathlib import Path

import pytest

from jax_rl.costs.collectives import Collective, find_axes, parse_groups
from jax_rl.costs.hlo import Module, parse_module, parse_type
from jax_rl.costs.loops import count_trips
from jax_rl.costs.walk import DeviceCosts, walk_module

FILES = Path(__file__).parent / "costs"


def walk(name: str, mesh: dict[str, int], loop_trips: float = 1.0) -> DeviceCosts:
    module = parse_module((FILES / f"{name}.txt").read_text())
    return walk_module(module, mesh, loop_trips=loop_trips)


@pytest.mark.parametrize(
    ("text", "size", "padded", "stored"),
    [
        ("f32[3,5]{1,0}", 60, 60, 60),
        ("bf16[]", 2, 2, 2),
        ("pred[7]{0}", 7, 7, 7),
        ("s4[3]{0}", 2, 2, 2),
        ("f8e4m3fn[10]{0}", 10, 10, 10),
        ("token[]", 0, 0, 0),
        # 20 rows to 24, 64 columns to 128.
        ("bf16[20,64]{1,0:T(8,128)(2,1)}", 2560, 24 * 128 * 2, 24 * 128 * 2),
        # The same numbers transposed: 20 is the fast dimension.
        ("bf16[20,64]{0,1:T(8,128)(2,1)}", 2560, 64 * 128 * 2, 64 * 128 * 2),
        ("s32[]{:T(128)}", 4, 512, 512),
        ("f32[8,128]{1,0:T(8,128)S(1)}", 4096, 4096, 0),
    ],
)
def test_sizes_of_types(text: str, size: int, padded: int, stored: int) -> None:
    (array,) = parse_type(text)
    assert (array.size, array.padded, array.stored) == (size, padded, stored)


def test_a_line_is_read_whole() -> None:
    module = parse_module(
        """HloModule m, num_partitions=4

ENTRY %main (a: f32[2]) -> (f32[2], (s32[], f32[2])) {
  %a = f32[2]{0} parameter(0), sharding={devices=[4]<=[4]}
  %c.1 = f32[2]{0} constant({1, (2)})
  %b = (f32[2]{0}, /*index=1*/(s32[]{:T(128)}, f32[2]{0})) custom-call(f32[2]{0} %a, %c.1), to_x=%y
  ROOT %add.2 = f32[2]{0} add(%a, %a), metadata={op_name="a(b"}
}
"""
    )
    main = module.computations[module.entry]
    assert module.partitions == 4
    assert main.root.name == "add.2"
    assert main.root.operands == ("a", "a")
    call = main.instructions["b"]
    assert (call.opcode, call.operands, call.find("to_x")) == ("custom-call", ("a", "c.1"), "y")
    assert [array.shape for array in call.arrays] == [(2,), (), (2,)]
    assert [user.name for user in main.users["a"]] == ["b", "add.2"]


def test_text_without_an_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="ENTRY"):
        parse_module("not a program")


# Groups

ROWS_AND_COLUMNS = (("data", 2), ("fsdp", 4))


@pytest.mark.parametrize(
    ("attributes", "groups", "axes"),
    [
        ("replica_groups={{0,1,2,3},{4,5,6,7}}", ((0, 1, 2, 3), (4, 5, 6, 7)), ("fsdp",)),
        ("replica_groups={{0,4},{1,5},{2,6},{3,7}}", ((0, 4), (1, 5), (2, 6), (3, 7)), ("data",)),
        ("replica_groups=[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7)), ("fsdp",)),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7)), ("data",)),
        ("replica_groups={}", ((0, 1, 2, 3, 4, 5, 6, 7),), ("data", "fsdp")),
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", ((0, 1), (2, 3), (4, 5), (6, 7)), ("fsdp",)),
        (
            "replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}, use=x",
            ((0, 1, 2, 3), (4, 5, 6, 7)),
            ("fsdp",),
        ),
        # Devices in the order 0 4 1 5 2 6 3 7 fill a 4 x 1 x 2 mesh, whose first axis varies.
        (
            "replica_groups=mesh['axis_0'=4,'axis_1'=1,'axis_2'=2], device_ids=([2,4]T(1,0))"
            " {'axis_0'}, use=x",
            ((0, 1, 2, 3), (4, 5, 6, 7)),
            ("fsdp",),
        ),
        # Of an axis of 8 in 2 x 4 the part of 4, and the part of 2.
        ("replica_groups=mesh['a'=8] {'a':(2)4}", ((0, 1, 2, 3), (4, 5, 6, 7)), ("fsdp",)),
        (
            "replica_groups=mesh['a'=8] {'a':(1)2}",
            ((0, 4), (1, 5), (2, 6), (3, 7)),
            ("data",),
        ),
    ],
)
def test_groups(attributes: str, groups: object, axes: object) -> None:
    assert parse_groups(attributes, 8) == groups
    assert find_axes(parse_groups(attributes, 8), ROWS_AND_COLUMNS) == axes


def test_groups_of_devices_outside_of_the_mesh_have_no_axes() -> None:
    assert find_axes(((0, 8),), ROWS_AND_COLUMNS) == ()


# Loops

LOOP = """HloModule m

%add_one (p: s32[]) -> s32[] {{
  %p = s32[] parameter(0)
  %one = s32[] constant(1)
  ROOT %sum = s32[] add(%p, %one)
}}

%body (s: (s32[], f32[256], s32[])) -> (s32[], f32[256], s32[]) {{
  %s = (s32[], f32[256]{{0}}, s32[]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[256]{{0}} get-tuple-element(%s), index=1
  %limit = s32[] get-tuple-element(%s), index=2
  %three = s32[] constant(3)
  %next = {step}
  %y = f32[256]{{0}} add(%x, %x)
  ROOT %t = (s32[], f32[256]{{0}}, s32[]) tuple(%next, %y, {kept})
}}

%less (a: s32[], b: s32[]) -> pred[] {{
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %lt = pred[] compare(%a, %b), direction={direction}
}}

%condition (s: (s32[], f32[256], s32[])) -> pred[] {{
  %s.1 = (s32[], f32[256]{{0}}, s32[]) parameter(0)
  %i.1 = s32[] get-tuple-element(%s.1), index=0
  %limit.1 = s32[] get-tuple-element(%s.1), index=2
  %eleven = s32[] constant({eleven})
  ROOT %go = pred[] {compare}
}}

ENTRY %main (x: f32[256], n: s32[]) -> f32[256] {{
  %x.1 = f32[256]{{0}} parameter(0)
  %n = s32[] parameter(1)
  %start = s32[] constant(2)
  %copy = s32[] copy(%start)
  %ten = s32[] constant(10)
  %t.1 = (s32[], f32[256]{{0}}, s32[]) tuple(%copy, %x.1, {limit})
  %loop = (s32[], f32[256]{{0}}, s32[]) while(%t.1), condition=%condition, body=%body{known}
  ROOT %out = f32[256]{{0}} get-tuple-element(%loop), index=1
}}
"""
DEFAULTS = {
    "step": "s32[] fusion(%i), kind=kLoop, calls=%add_one",
    "direction": "LT",
    "compare": "fusion(%i.1, %eleven), kind=kLoop, calls=%less",
    "limit": "%ten",
    "known": "",
    "eleven": "11",
    "kept": "%limit",
}


def read_loop(**changes: str) -> Module:
    return parse_module(LOOP.format(**{**DEFAULTS, **changes}))


@pytest.mark.parametrize(
    ("changes", "trips"),
    [
        ({}, 9),  # 2 ... 10
        ({"direction": "LE"}, 10),
        ({"step": "s32[] add(%i, %three)"}, 3),  # 2, 5, 8
        ({"step": "s32[] subtract(%i, %three)"}, None),  # away from the limit
        # Downwards by 3: 2 is not above 11; above -4 are 2 and -1.
        ({"step": "s32[] subtract(%i, %three)", "direction": "GT"}, 0),
        (
            {
                "step": "s32[] subtract(%i, %three)",
                "compare": "compare(%i.1, %eleven), direction=GT",
                "eleven": "-4",
            },
            2,
        ),
        ({"compare": "compare(%i.1, %limit.1), direction=LT"}, 8),  # 2 ... 9
        ({"compare": "compare(%limit.1, %i.1), direction=GT"}, None),  # the limit as variable
        ({"compare": "compare(%eleven, %i.1), direction=GE"}, 10),  # 2 ... 11
        ({"compare": "compare(%i.1, %limit.1), direction=LT", "limit": "%n"}, None),
        ({"compare": "compare(%i.1, %limit.1), direction=LT", "kept": "%next"}, None),
        ({"known": ', backend_config={"known_trip_count":{"n":"5"}}'}, 5),
        ({"compare": "and(%i.1, %limit.1)"}, None),
    ],
)
def test_trips(changes: dict[str, str], trips: int | None) -> None:
    module = read_loop(**changes)
    main = module.computations["main"]
    assert count_trips(module, main, main.instructions["loop"]) == trips


def test_a_loop_costs_as_often_as_it_runs() -> None:
    # The vector is read and written, 1024 bytes each; the counter's condition reads 4 and writes
    # 1, its fusion reads and writes 4. Before the loop the counter is copied: 4 written.
    once = 2048 + 5 + 8
    assert walk_module(read_loop(), {"data": 1}).bytes == 4 + 9 * once
    unknown = read_loop(compare="compare(%i.1, %limit.1), direction=LT", limit="%n")
    assert walk_module(unknown, {"data": 1}, loop_trips=6.5).bytes == 4 + 6.5 * (once + 4)


def test_a_counted_loop_turns_as_often_as_it_is_told() -> None:
    once = 2048 + 5 + 8
    module = read_loop()
    assert walk_module(module, {"data": 1}, loop_trips=2.0, counted=9).bytes == 4 + 2 * once
    assert walk_module(module, {"data": 1}, loop_trips=0.0, counted=9).bytes == 4
    with pytest.raises(LookupError, match="0 loops of 8 trips"):
        walk_module(module, {"data": 1}, counted=8)


# Instructions

PARTS = """HloModule m

%update (p: f32[100,64], q: f32[1,64], i: s32[]) -> f32[100,64] {
  %p = f32[100,64]{1,0} parameter(0)
  %q = f32[1,64]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %dus = f32[100,64]{1,0} dynamic-update-slice(%p, %q, %i, %zero)
}

%update_converted (p: bf16[100,64], q: f32[1,64], i: s32[]) -> f32[100,64] {
  %p.1 = bf16[100,64]{1,0} parameter(0)
  %q.1 = f32[1,64]{1,0} parameter(1)
  %i.1 = s32[] parameter(2)
  %zero.1 = s32[] constant(0)
  %wide = f32[100,64]{1,0} convert(%p.1)
  ROOT %dus.1 = f32[100,64]{1,0} dynamic-update-slice(%wide, %q.1, %i.1, %zero.1)
}

%two_rows (p: f32[100,64], i: s32[]) -> f32[1,64] {
  %p.2 = f32[100,64]{1,0} parameter(0)
  %i.2 = s32[] parameter(1)
  %zero.2 = s32[] constant(0)
  %flat = f32[100,1,64]{2,1,0} bitcast(%p.2)
  %one = f32[1,1,64]{2,1,0} dynamic-slice(%flat, %i.2, %zero.2, %zero.2), sizes={1,1,64}
  %row = f32[1,64]{1,0} bitcast(%one)
  %first = f32[1,64]{1,0} slice(%p.2), slice={[0:1], [0:64]}
  ROOT %sum = f32[1,64]{1,0} add(%row, %first)
}

%cheap (p: f32[100,64]) -> f32[100,64] {
  ROOT %p.3 = f32[100,64]{1,0} parameter(0)
}

%dear (p: f32[100,64]) -> f32[100,64] {
  %p.4 = f32[100,64]{1,0} parameter(0)
  ROOT %n = f32[100,64]{1,0} negate(%p.4)
}

%wrapped (p: f32[100,64]) -> f32[100,64] {
  %p.5 = f32[100,64]{1,0} parameter(0)
  ROOT %n.1 = f32[100,64]{1,0} negate(%p.5)
}

ENTRY %main (a: f32[100,64], h: bf16[100,64], r: f32[1,64], i: s32[], k: s32[5]) -> f32[100,64] {
  %a = f32[100,64]{1,0} parameter(0)
  %h = bf16[100,64]{1,0} parameter(1)
  %r = f32[1,64]{1,0} parameter(2)
  %i.3 = s32[] parameter(3)
  %k = s32[5]{0} parameter(4)
  %x = LINE
  ROOT %out = f32[100,64]{1,0} parameter(5)
}
"""
ROW, ARRAY = 64 * 4, 100 * 64 * 4
WHOLE = "f32[100,64]{1,0}"
STARTED = f"(({WHOLE}), {WHOLE}, s32[])"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"{WHOLE} add(%a, %a)", 2 * ARRAY),
        (f"{WHOLE} fusion(%a, %r, %i.3), kind=kLoop, calls=%update", 2 * ROW + 4),
        (
            f"{WHOLE} fusion(%h, %r, %i.3), kind=kLoop, calls=%update_converted",
            ARRAY // 2 + ROW + 4 + ARRAY,
        ),
        ("f32[1,64]{1,0} fusion(%a, %i.3), kind=kLoop, calls=%two_rows", 3 * ROW + 4),
        ("f32[1,64]{1,0} dynamic-slice(%a, %i.3, %i.3), dynamic_slice_sizes={1,64}", 2 * ROW + 8),
        ("f32[5,64]{1,0} gather(%a, %k), offset_dims={1}", 10 * ROW + 20),
        (f"{WHOLE} dynamic-update-slice(%a, %r, %i.3, %i.3)", 2 * ROW),
        (f"{WHOLE} scatter(%a, %k, %r), to_apply=%update", 20 + ROW + 2 * ROW),
        (f"{WHOLE} bitcast(%a)", 0),
        (f"{WHOLE} call(%a), to_apply=%dear", 2 * ARRAY),
        (
            f"{WHOLE} conditional(%i.3, %a, %a), branch_computations={{%cheap, %dear}}",
            2 * ARRAY,
        ),
        (
            f"{WHOLE} conditional(%i.3, %a, %a), true_computation=%dear, false_computation=%cheap",
            2 * ARRAY,
        ),
        (f"{STARTED} async-start(%a), calls=%wrapped", 2 * ARRAY),
        (f"({WHOLE}, {WHOLE}, u32[]) copy-start(%a)", 2 * ARRAY),
        ("(f32[100,64]{1,0:S(1)}, f32[100,64]{1,0}, u32[]) copy-start(%a)", ARRAY),
        (
            "((f32[100,64]{1,0}), f32[1,64]{1,0:S(1)}, s32[]{:S(2)}) slice-start(%a),"
            " slice={[0:1], [0:64]}",
            ROW,
        ),
        (
            '(f32[100,64]{1,0}, s8[999]{0}) custom-call(%a), custom_call_target="__cublas$lt"',
            2 * ARRAY,
        ),
        (f'{WHOLE} custom-call(%a, %r), custom_call_target="ConcatBitcast"', 0),
    ],
)
def test_bytes_of_one_instruction(line: str, expected: int) -> None:
    assert walk_module(parse_module(PARTS.replace("LINE", line)), {"data": 1}).bytes == expected


# Real programs

CACHE = 16 * 4096 * 4 * 256 * 2
"""Of one device, read whole and written at one column in each step."""
STATES = 16 * 1024 * 2
WEIGHT = 1024 * 1024 * 2
TWO_AXES = {"data": 2, "fsdp": 2}
ALL_REDUCED = Collective("all-reduce", ("data", "fsdp"), 1.0, 2 * 2 * 3 / 4, 4)
"""The greatest of the states, one bfloat16, which each condition asks for."""


def test_decode_loop_of_a_tpu() -> None:
    # Before and after the loop the cache is copied into another layout and back, the states are
    # copied, and the weight goes to the chip, where the loop finds it; a scalar takes 512 bytes.
    around = 2 * (2 * CACHE) + 2 * STATES + WEIGHT + 512
    # Scores and mixture read the cache; the states are read, copied, and written as a column; five
    # scalars. The condition reads the states and handles six scalars.
    body = 2 * CACHE + 3 * STATES + 5 * 512
    condition = STATES + 6 * 512
    for trips in (1.0, 100.0):
        found = walk("tpu_decode", TWO_AXES, trips)
        assert found.bytes == around + trips * (body + condition)
        assert found.collectives == (ALL_REDUCED * trips,)


def test_decode_loop_of_a_gpu() -> None:
    scores, shares, partial, sums = 16 * 4096 * 4 * 4, 16 * 4096 * 4 * 2, 8 * STATES * 2, 16 * 4 * 4
    body = (
        (STATES + WEIGHT + partial)  # product in 8 parts
        + (partial + STATES)  # their sum
        + (STATES + 4 + STATES)  # column of the cache, at an index
        + (4 + 4)  # counter
        + (CACHE + STATES + scores)
        + (scores + sums)  # greatest
        + (scores + sums + scores)  # exponential
        + (scores + sums)
        + (scores + sums + shares)
        + (CACHE + shares + STATES)
    )
    condition = (STATES + 2) + (2 + 2) + (2 + 4 + 1)
    found = walk("cuda_decode", TWO_AXES, 10.0)
    assert found.bytes == 2 * STATES + 4 + 10 * (body + condition)
    assert found.collectives == (ALL_REDUCED * 10.0,)


def test_exchange_between_slices_of_tpus() -> None:
    found = walk("tpu_slices", {"data": 2, "fsdp": 4})
    part = 1024 * 1024 * 2  # a weight of 1024 x 4096 in quarters, and the rows, have this size
    # Rows and weight to the chip, the scattered gradient from it, to the host and back, one copy.
    assert found.bytes == (1 + 1 + 1 + 1 + 1 + 2) * part
    assert found.collectives == (
        Collective("all-gather", ("fsdp",), 1.0, 3 * part, 4),
        Collective("reduce-scatter", ("fsdp",), 1.0, 3 * part, 4),
        Collective("all-reduce", ("data",), 1.0, 1.0 * part, 2),
    )


SLICES = """HloModule m, num_partitions=2

ENTRY %main (a: f32[10]) -> f32[10] {
  %a = f32[10]{0} parameter(0)
  %after = token[] after-all()
  %send = (f32[10]{0}, u32[], token[]) send(%a, %after), channel_id=2, frontend_attributes={TARGET}
  %done = token[] send-done(%send)
  %recv = (f32[10]{0}, u32[], token[]) recv(%after), channel_id=1, frontend_attributes={TARGET}
  %back = (f32[10]{0}, token[]) recv-done(%recv)
  ROOT %out = f32[10]{0} get-tuple-element(%back), index=0
}
"""


@pytest.mark.parametrize(
    ("kind", "target", "expected"),
    [
        ("ALL_REDUCE", '"{1:2}x{0,1}"', Collective("all-reduce", ("data",), 1.0, 40.0, 2)),
        (
            "ALL_GATHER",
            "{{100000,200000},{100001,200001}}",
            Collective("all-gather", ("data",), 1.0, 40.0, 2),
        ),
        (
            "ALL_TO_ALL",
            "{{100000,200001},{100001,200000}}",
            Collective("all-to-all", ("data", "fsdp"), 1.0, 20.0, 2),
        ),
        (
            "ONE_TO_ONE",
            "{{100000->200000},{200000->100000},{100001->200001},{200001->100001}}",
            Collective("collective-permute", ("data",), 1.0, 40.0, 2),
        ),
    ],
)
def test_kinds_of_exchange_between_slices(kind: str, target: str, expected: Collective) -> None:
    names = f'_xla_megascale_target={target},_xla_megascale_transfer_type="{kind}"'
    found = walk_module(parse_module(SLICES.replace("TARGET", names)), {"data": 2, "fsdp": 2})
    assert found == DeviceCosts(80.0, (expected,))


def test_exchanges_inside_of_fusions_of_a_tpu() -> None:
    found = walk("tpu_fusions", {"data": 2, "fsdp": 4})
    # Two slices of stacked weights are read, and gathered on the chip, one of them while a product
    # is made, which writes its mask; the gathered weight is written for the backward pass.
    assert found.bytes == 2 * (512 * 8192 * 2) + 1024 * 8192 + 8192 * 2048 * 2
    gathered = 2048 * 8192 * 2
    assert found.collectives == (
        Collective("all-gather", ("fsdp",), 2.0, 2 * gathered * 3 / 4, 4),
        Collective("reduce-scatter", ("data", "fsdp"), 1.0, 1024 * 4096 * 2 * 7 / 8, 8),
    )


LONG = """HloModule m

ENTRY %e (x: f32[8]) -> f32[8] {
  %x.0 = f32[8]{0} parameter(0)
LINES
  ROOT %r = f32[8]{0} copy(%x.20000)
}
"""


def test_reading_is_linear_in_the_text() -> None:
    lines = (
        f"  %x.{i + 1} = f32[8]{{0}} add(%x.{i}, %x.{i}), metadata={{{'m' * 300}}}"
        for i in range(20_000)
    )
    text = LONG.replace("LINES", "\n".join(lines))
    assert len(text) > 7e6
    start = time.perf_counter()
    assert walk_module(parse_module(text), {"data": 1}).bytes == 20_001 * 64
    assert time.perf_counter() - start < 5
