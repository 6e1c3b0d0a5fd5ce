"""Clipping and update norms by batch, worked by hand."""

import dataclasses
import math

import pytest
from study_records import make_config, write_study

from jax_rl.records import read_run
from jax_rl.study.cells import make_cell
from jax_rl.study.rates.gradients import summarise_gradients


def read_cells(study, names):
    runs = {name: read_run(study / "cells" / name) for name in names}
    return [make_cell(run, name, order) for order, (name, run) in enumerate(runs.items(), 1)], runs


def set_norms(run, clipped, update):
    """Gives iterations their place among all as norm: 1, 2, 3, ..."""
    iterations = tuple(
        dataclasses.replace(
            event, grad_norm=float(n), clipped_gradient=clipped(n), update_norm=update(n)
        )
        for n, event in enumerate(run.iterations, 1)
    )
    return dataclasses.replace(run, iterations=iterations)


def test_means_are_taken_up_to_the_crossing_and_over_runs(tmp_path):
    config = make_config()
    config["batch"]["updates"] = 2
    write_study(
        tmp_path,
        {(256, 0): (4096, 100.0), (256, 1): (8192, 100.0), (64, 0): (4096, 50.0)},
        config=config,
    )
    cells, runs = read_cells(tmp_path, ["b00256_s0", "b00256_s1", "b00064_s0"])
    # 16 and 32 iterations up to the crossings; those after them are not looked at.
    runs["b00256_s0"] = set_norms(runs["b00256_s0"], lambda n: float(n > 12), lambda n: 0.1)
    runs["b00256_s1"] = set_norms(runs["b00256_s1"], lambda n: float(n <= 8), lambda n: 0.3)
    large, small = summarise_gradients(cells, runs)
    assert (large.setting, large.batch, large.runs) == ("replicated", 256, 2)
    assert large.grad_norm == pytest.approx((8.5 + 16.5) / 2)
    assert large.clipped == pytest.approx((4 / 16 + 8 / 32) / 2)
    assert large.update_norm == pytest.approx(0.2)
    assert large.update_per_sample == pytest.approx(0.2 / 128)  # minibatches of 128
    assert large.max_grad_norm == 1.0
    assert (small.batch, small.runs, small.clipped, small.grad_norm) == (64, 1, 0.0, 1.0)


def test_a_run_without_an_iteration_is_left_out(tmp_path):
    write_study(tmp_path, {(64, 0): (4096, 50.0)})
    cells, runs = read_cells(tmp_path, ["b00064_s0"])
    runs["b00064_s0"] = dataclasses.replace(runs["b00064_s0"], iterations=())
    assert summarise_gradients(cells, runs) == []


def test_an_update_that_diverged_is_left_out_of_the_means(tmp_path):
    write_study(tmp_path, {(64, 0): (4096, 50.0)})
    cells, runs = read_cells(tmp_path, ["b00064_s0"])
    run = set_norms(runs["b00064_s0"], lambda n: 0.5, lambda n: 0.1)
    first, *others = run.iterations
    lost = dataclasses.replace(first, grad_norm=math.nan, update_norm=math.inf)
    (found,) = summarise_gradients(
        cells, {"b00064_s0": dataclasses.replace(run, iterations=(lost, *others))}
    )
    # Iterations 2 to 64 of 64.
    assert found.grad_norm == pytest.approx(33)
    assert found.update_norm == pytest.approx(0.1)
    nothing = tuple(dataclasses.replace(e, grad_norm=math.nan) for e in run.iterations)
    (empty,) = summarise_gradients(
        cells, {"b00064_s0": dataclasses.replace(run, iterations=nothing)}
    )
    assert math.isnan(empty.grad_norm)
