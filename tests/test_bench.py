"""One tiny workload through every case of the benchmark."""

import json
from types import ModuleType

import jax
import pytest
from script_files import load_script

from jax_rl.config import ModelConfig
from jax_rl.mesh.layout_file import load_layout
from jax_rl.resources import find_layout

UNITS = {"S1": "tokens/s", "S8": "tokens/s", "L1": "sequences/s", "E1": "samples/s"}
ROWS, RESPONSE = 16, 3


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load_script("bench")


@pytest.mark.parametrize(
    "cases", [("S1",), pytest.param(("S8", "L1", "E1"), marks=pytest.mark.slow)]
)
def test_every_case_gives_one_consistent_line(bench: ModuleType, cases: tuple[str, ...]) -> None:
    workload = bench.Workload(
        name="test",
        model=ModelConfig(layers=1, embed=16, heads=2, kv_heads=1, head_dim=8, mlp=16, vocab=16),
        prompt_length=4,
        response_length=RESPONSE,
        min_repeat_seconds=0.0,
    )
    layout = load_layout(find_layout("fsdp"))
    records: list[dict] = []
    bench.run_bench(workload, cases, [ROWS], layout, 5, records.append)

    assert [record["case"] for record in records] == list(cases)
    for record in records:
        assert record["unit"] == UNITS[record["case"]]
        assert json.loads(json.dumps(record)) == record
        assert (record["peer"], record["model"], record["batch"]) == ("jax_rl", "test", ROWS)
        assert (record["layout"], record["devices"]) == ("fsdp", len(jax.devices()))
        assert record["n"] == 5
        assert 0.0 < record["min"] <= record["value"] <= record["max"]
        work = ROWS * RESPONSE if record["unit"] == "tokens/s" else ROWS
        assert record["value"] * record["median_s"] == pytest.approx(work, rel=1e-2)
        assert record["compile_s"] > 0.0
        assert record["peak_rss_mb"] > 0
        assert record["versions"]["jax"] == jax.__version__


def test_a_repeat_lasts_long_enough_and_warm_up_is_left_out(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [9.0, 0.2, *[0.1] * 4, 0.3]  # of each call; later ones take 0.1 s
    now = [0.0]
    calls: list[float] = []

    def run() -> None:
        calls.append(seconds[len(calls)] if len(calls) < len(seconds) else 0.1)
        now[0] += calls[-1]

    monkeypatch.setattr(bench.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(bench.time, "process_time", lambda: now[0] / 2)
    repeats = bench.measure(run, 2, 0.5)

    # The call that follows the first takes 0.2 s, so 3 calls make a repeat of half a second.
    assert len(calls) == 2 + 2 * 3
    assert [repeat.seconds for repeat in repeats] == pytest.approx([0.1, (0.1 + 0.3 + 0.1) / 3])
    assert [repeat.cpu_seconds for repeat in repeats] == pytest.approx([0.05, 0.5 / 6])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--cases", "S2"], "known: S1, S8, L1, E1"),
        (["--repeats", "4"], "at least 5"),
        (["--batches", "16;64"], "whole numbers with commas"),
        (["--layout", "fsdb"], "Did you mean 'fsdp'"),
        (["--cases", "L1", "--batches", "12"], "valid sizes near it: 8, 16"),
    ],
)
def test_wrong_options_are_refused(
    bench: ModuleType, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        bench.main(argv)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
