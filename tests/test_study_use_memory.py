"""Memory of a run out of its record: the same as on paper, and the compiled programs' own."""

import dataclasses

import pytest
from study_records import make_start

from jax_rl.config import Config
from jax_rl.config_file import config_to_dict
from jax_rl.mesh.batch_plan import plan_batch
from jax_rl.mesh.layout_file import load_layout
from jax_rl.records import Compile, RunRecord
from jax_rl.resources import find_layout
from jax_rl.study.use.memory import read_memory
from jax_rl.trainer.memory import plan_memory

SIZES = {"data": 1, "fsdp": 2, "tensor": 1}


@pytest.fixture
def run() -> RunRecord:
    config = Config()
    layout = load_layout(find_layout("fsdp"))
    plan = plan_batch(config.batch, layout, SIZES)
    start = dataclasses.replace(
        make_start(config_to_dict(config), config.batch.size, 0),
        layout=layout.as_dict() | {"axis_sizes": SIZES},
        batch_plan=dataclasses.asdict(plan),
    )
    return RunRecord(start, (start,), None, None, (), (), (), (), None, None)


def compiled(program: str, **sizes: int) -> Compile:
    costs = {
        "flops": 0.0,
        "matmul_flops": 0.0,
        "bytes": 0.0,
        "collectives": [],
        "arguments": 0,
        "outputs": 0,
        "temporaries": 0,
        "aliased": 0,
        "code": 0,
    }
    return Compile(program=program, shapes={}, seconds=1.0, costs=costs | sizes)


def test_kinds_are_those_of_the_plan_on_paper(run: RunRecord) -> None:
    config = Config()
    layout = load_layout(find_layout("fsdp"))
    paper = plan_memory(config, plan_batch(config.batch, layout, SIZES), layout, SIZES)
    use = read_memory(run)
    assert use.by_kind["weights"] == paper.weights
    assert use.by_kind["optimizer"] == 2 * paper.weights
    assert use.by_kind["cache"] == paper.cache
    assert use.by_kind["gradients"] == paper.gradients + paper.in_use
    assert use.paper == {
        "sync": paper.sync,
        "generate": paper.generate,
        "learn": paper.learn,
    }
    assert use.compiled == {}
    assert use.unknown == ""
    assert use.measured is None
    assert use.of_process


def test_peaks_of_compiled_programs_hold_the_state(run: RunRecord) -> None:
    compiles = (
        compiled("prefill", arguments=100, outputs=20, temporaries=30, aliased=10),
        compiled("decode", arguments=50, temporaries=7),
        compiled("update", arguments=1000, outputs=900, temporaries=40, aliased=900),
    )
    use = read_memory(dataclasses.replace(run, compiles=compiles))
    state = 3 * read_memory(run).by_kind["weights"]
    # The update is handed the state as its arguments, the sampler works beside it.
    assert use.compiled == {"generate": state + 140, "learn": 1040}
    assert use.temporaries == {"generate": 30, "learn": 40}


def test_a_record_of_another_trainer_tells_nothing() -> None:
    start = make_start(config_to_dict(Config()), 64, 0, platform="gpu")
    run = RunRecord(start, (start,), None, None, (compiled("update"),), (), (), (), None, None)
    use = read_memory(run)
    assert use.by_kind == {}
    assert use.paper == {}
    assert use.compiled == {}
    assert use.temporaries == {"learn": 0}
    assert use.unknown.startswith("the record does not say")
    assert not use.of_process


def test_a_setting_of_another_version_is_named(run: RunRecord) -> None:
    config = dict(run.start.config) | {"model": {"layer": 2}}
    start = dataclasses.replace(run.start, config=config)
    use = read_memory(dataclasses.replace(run, start=start))
    assert use.by_kind == {}
    assert "key 'layer'" in use.unknown
