"""A sweep over layouts: the order, each cell's layout, a real study, a study from before."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from trainer_runs import CONFIG, change, drop_measured

from jax_rl.errors import UserError
from jax_rl.records import FILE_NAME, read_run
from jax_rl.report.table import render_table
from jax_rl.study.analyse import analyse
from jax_rl.study.cells import Planned
from jax_rl.sweep import run as sweep
from jax_rl.sweep.plan import make_cell_config, order_cells
from jax_rl.sweep.run import run_study

LAYOUTS = ("fsdp", "replicated")
STUDY = change(
    CONFIG,
    validation={"every_samples": 16},
    optimizer={"learning_rate": 0.02},
    budget={"target": 0.3, "samples": 512},
    study={"layouts": LAYOUTS, "seeds": 1},
    run={"devices": 2},
)
"""Batches 8 and 16 in two layouts on two devices, seed 0."""


def skip_training(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path, str]]:
    """Trains nothing; lists layout, directory and label of each cell instead."""
    made: list[tuple[str, Path, str]] = []

    def note(config: Any, cell: Path, *, label: str, **_: Any) -> None:
        made.append((config.run.layout, cell, label))

    monkeypatch.setattr("jax_rl.sweep.run.train", note)
    monkeypatch.setattr("jax_rl.sweep.run.jax.clear_caches", lambda: None)
    return made


def test_order_mixes_layouts_and_batches_within_a_seed() -> None:
    wide = change(STUDY, study={"smaller": 0, "larger": 3, "seeds": 20})
    order = order_cells(wide)
    blocks = [order[i : i + 8] for i in range(0, 160, 8)]
    every = {(layout, batch) for layout in LAYOUTS for batch in (16, 32, 64, 128)}
    assert [{cell.seed for cell in block} for block in blocks] == [{i} for i in range(20)]
    assert all({(cell.setting, cell.batch) for cell in block} == every for block in blocks)
    assert len({(block[0].setting, block[0].batch) for block in blocks}) > 4
    # Hardly a block runs its layouts one after the other.
    in_turn = [len({cell.setting for cell in block[:4]}) == 1 for block in blocks]
    assert sum(in_turn) < 4


def test_a_cell_lies_in_its_layout(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('description = "mine"\n')
    config = change(STUDY, study={"layouts": ("fsdp", str(path))})
    cell = make_cell_config(config, Planned("mine", 8, 3))
    assert (cell.run.layout, cell.run.seed, cell.batch.size) == (str(path), 3, 8)
    assert cell.optimizer.learning_rate == pytest.approx(0.02 * math.sqrt(1 / 2))
    assert make_cell_config(config, Planned("fsdp", 8, 3)).run.layout == "fsdp"
    assert {plan.setting for plan in order_cells(config)} == {"fsdp", "mine"}
    alone = change(STUDY, study={"layouts": ()}, run={"layout": "tensor"})
    assert make_cell_config(alone, Planned("", 8, 3)).run.layout == "tensor"


def test_a_cell_has_the_values_of_its_setting() -> None:
    axes = {
        "layouts": (),
        "rules": ("none", "adam"),
        "growth": ("prompts", "group"),
        "updates": (1, 2),
        "devices": ("fixed", "batch"),
        "factor": 4,
    }
    config = change(STUDY, study=axes, batch={"size": 32, "group": 8}, run={"devices": 4})
    own = make_cell_config(config, Planned("rate_adam-group-updates2-devices_grow", 8, 7))
    assert (own.batch.size, own.batch.group, own.batch.updates) == (8, 2, 2)
    assert (own.run.devices, own.run.seed, own.run.layout) == (1, 7, "replicated")
    # Minibatches of 4 against the reference's 32.
    assert own.optimizer.learning_rate == pytest.approx(0.02 / math.sqrt(8))
    assert own.optimizer.b1 == pytest.approx(0.9 ** (1 / 8))
    assert own.optimizer.b2 == pytest.approx(0.99 ** (1 / 8))
    assert own.optimizer.epsilon == pytest.approx(1e-8 * math.sqrt(8))
    plain = make_cell_config(config, Planned("rate_none-prompts-updates1-devices_fixed", 8, 7))
    assert (plain.batch.group, plain.batch.updates, plain.run.devices) == (8, 1, 4)
    assert plain.optimizer == config.optimizer
    for same in ("task", "model", "validation", "budget", "objective", "study"):
        assert getattr(own, same) == getattr(plain, same) == getattr(config, same)
    assert len(order_cells(config)) == 16 * 2
    assert order_cells(config)[0].name.startswith("rate_")


def test_the_power_rule_uses_its_exponent() -> None:
    config = change(STUDY, study={"layouts": (), "rate_rule": "power", "rate_power": 0.25})
    own = make_cell_config(config, Planned("", 8, 0))
    assert own.optimizer.learning_rate == pytest.approx(0.02 * 0.5**0.25)


def test_devices_that_are_not_there_are_refused_before_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = skip_training(monkeypatch)
    study = {"layouts": (), "devices": ("batch",), "factor": 4, "smaller": 0, "larger": 2}
    config = change(STUDY, study=study, validation={"every_samples": 256})
    with pytest.raises(UserError, match=r"run\.devices = 32"):
        run_study(config, tmp_path / "study", progress=False)
    assert made == [] and not (tmp_path / "study").exists()


def test_names_of_cells_come_back_from_the_order() -> None:
    assert Planned("fsdp", 32, 1).name == "fsdp_b00032_s1"
    assert Planned("", 32, 1).name == "b00032_s1"
    for entry in (["fsdp", 32, 1], [32, 1]):
        assert Planned.from_entry(entry).entry == entry


def test_the_description_names_the_layouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = skip_training(monkeypatch)
    run_study(STUDY, tmp_path / "study", progress=False)
    content = json.loads((tmp_path / "study" / "study.json").read_text())
    assert list(content["settings"]) == list(LAYOUTS)
    assert content["order"] == [list(dataclasses.astuple(plan)) for plan in order_cells(STUDY)]
    assert [(layout, cell.name) for layout, cell, _ in made] == [
        (plan.setting, plan.name) for plan in order_cells(STUDY)
    ]
    first = order_cells(STUDY)[0]
    assert made[0][2] == f"[1/4] {first.setting} batch {first.batch} seed 0"
    with pytest.raises(UserError, match=r"study\.layouts was \['fsdp', 'replicated'\] and is now"):
        run_study(change(STUDY, study={"layouts": ("fsdp",)}), tmp_path / "study")


def test_a_layout_that_does_not_fit_is_refused_before_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = skip_training(monkeypatch)
    path = tmp_path / "three.toml"
    path.write_text("[mesh]\nfsdp = 3\n")
    config = change(STUDY, study={"layouts": ("replicated", str(path))})
    with pytest.raises(UserError, match="layout three"):
        run_study(config, tmp_path / "study", progress=False)
    eight = change(STUDY, study={"layouts": LAYOUTS}, run={"devices": 8}, batch={"group": 4})
    small = change(eight, batch={"size": 8})
    with pytest.raises(UserError, match=r"layout fsdp, batch 4: batch\.size = 4"):
        run_study(small, tmp_path / "study", progress=False)
    assert made == []
    assert not (tmp_path / "study").exists()


def test_a_study_from_before_there_were_layouts_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = skip_training(monkeypatch)
    old = change(STUDY, study={"layouts": ()})
    run_study(old, tmp_path / "study", progress=False)
    path = tmp_path / "study" / "study.json"
    content = json.loads(path.read_text())
    assert content["config"]["study"].pop("layouts") == []
    path.write_text(json.dumps(content))
    run_study(old, tmp_path / "study", progress=False)
    assert [cell.name for _, cell, _ in made[2:]] == [plan.name for plan in order_cells(old)]
    with pytest.raises(UserError, match=r"study\.layouts was \[\] and is now"):
        run_study(STUDY, tmp_path / "study")


@pytest.mark.slow
def test_a_real_study_of_rules_and_growth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jax_rl.sweep.run.jax.clear_caches", lambda: None)
    axes = {"layouts": (), "rules": ("none", "adam"), "growth": ("prompts", "group")}
    config = change(STUDY, study=axes, budget={"samples": 16}, run={"devices": 1})
    run_study(config, tmp_path / "study", progress=False)
    content = json.loads((tmp_path / "study" / "study.json").read_text())
    assert list(content["settings"]) == [
        "rate_none-prompts",
        "rate_none-group",
        "rate_adam-prompts",
        "rate_adam-group",
    ]
    for cell in order_cells(config):
        start = read_run(tmp_path / "study" / "cells" / cell.name).start
        setting = content["settings"][cell.setting]
        assert start.rate_rule == setting["rule"]
        size, group = start.config["batch"]["size"], start.config["batch"]["group"]
        assert (size, group) == (
            cell.batch,
            4 if cell.setting.endswith("group") and size == 8 else 8,
        )
        moved = setting["rule"] == "adam" and size == 8
        assert start.config["optimizer"]["b1"] == (pytest.approx(0.9**0.5) if moved else 0.9)
        assert start.learning_rate == pytest.approx(0.02 * (0.5**0.5 if moved else 1.0))


@pytest.mark.slow
def test_a_real_study_of_two_layouts_stops_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Cells would compile anew, also programs that are the same.
    monkeypatch.setattr("jax_rl.sweep.run.jax.clear_caches", lambda: None)
    train, started = sweep.train, list[str]()

    def stop_at_third(config: Any, cell: Path, **options: Any) -> Any:
        started.append(cell.name)
        if len(started) == 3:
            raise KeyboardInterrupt
        return train(config, cell, **options)

    monkeypatch.setattr(sweep, "train", stop_at_third)
    directory = tmp_path / "pairs"
    with pytest.raises(KeyboardInterrupt):
        run_study(STUDY, directory, progress=False)
    half = analyse(directory)
    assert (len(half.cells), half.planned_cells) == (2, 4)
    before = {path: path.read_bytes() for path in directory.rglob(FILE_NAME)}
    run_study(STUDY, directory, progress=False)
    assert all(path.read_bytes() == content for path, content in before.items())
    names = [plan.name for plan in order_cells(STUDY)]
    assert started == [*names[:3], *names[2:]]

    runs = {name: read_run(directory / "cells" / name) for name in names}
    for name, run in runs.items():
        assert name.startswith(str(run.start.layout["name"]) + "_")
        assert run.start.device_count == 2
    sizes = {run.start.layout["name"]: run.start.layout["axis_sizes"] for run in runs.values()}
    assert sizes["fsdp"] == {"data": 1, "fsdp": 2, "tensor": 1}
    assert sizes["replicated"] == {"data": 2, "fsdp": 1, "tensor": 1}
    for batch in (8, 16):
        # The same prompts, the same random numbers: the first iteration asks and answers alike.
        first = [
            drop_measured(runs[f"{layout}_b{batch:05d}_s0"].iterations[:1])[0]["reward"]
            for layout in LAYOUTS
        ]
        assert first[0] == pytest.approx(first[1], abs=1e-6)
    summary = analyse(directory)
    assert [one.setting for one in summary.settings] == list(LAYOUTS)
    assert summary.training.layout in LAYOUTS
    assert len(summary.training.against_fastest) == 3
    assert not any(ratio.differs for ratio in summary.layout_ratios)
    assert render_table(summary) is not None
