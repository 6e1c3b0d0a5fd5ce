"""Which programs are compiled once for several points, and how they tell of the others."""

from typing import Any

import pytest
from plan_points import list_points
from trainer_runs import CONFIG, change

from jax_rl.errors import UserError
from jax_rl.plan.jobs import Job, Point, Recipe, check_layers, choose_recipes

FIXED: dict[str, Any] = {"batch": {"wave": 16, "microbatch": 8}}


def jobs_of(
    points: list[Point], *, layers: tuple[int, int] | None = None, every_batch: bool = False
) -> tuple[list[dict[str, Recipe]], set[Job]]:
    recipes = choose_recipes(points, layers=layers, every_batch=every_batch, decode_trips=15)
    return recipes, {p.job for recipe in recipes for parts in recipe.values() for p in parts}


def test_what_does_not_change_with_the_batch_is_compiled_once() -> None:
    points = list_points(32, 64, **FIXED)
    recipes, jobs = jobs_of(points)
    names = sorted(job.program for job in jobs)
    assert names == ["decode", "join", "join", "prefill", "sync", "update"]
    assert recipes[0]["decode"][0].job == recipes[1]["decode"][0].job
    assert recipes[0]["decode"][0].trips == 15
    assert recipes[0]["join"][0].job != recipes[1]["join"][0].job


def test_a_batch_taken_whole_changes_everything_but_sync() -> None:
    _, jobs = jobs_of(list_points(16, 32))
    assert sorted(job.program for job in jobs) == [
        *("decode", "decode", "prefill", "prefill", "sync", "update", "update")
    ]


def test_the_largest_update_tells_those_of_smaller_batches() -> None:
    points = list_points(16, 32, 64, **FIXED)
    recipes, jobs = jobs_of(points)
    (update,) = (job for job in jobs if job.program == "update")
    assert (update.config.batch.size, update.counted) == (64, 8)
    parts = [part for recipe in recipes for part in recipe["update"]]
    assert [(p.weight, p.trips, p.turned) for p in parts] == [
        *((1.0, 2, True), (1.0, 4, True), (1.0, 8, False))
    ]
    recipes, every = jobs_of(points, every_batch=True)
    assert sorted(j.config.batch.size for j in every if j.program == "update") == [16, 32, 64]
    assert {(j.counted, p.trips) for r in recipes for p in r["update"] for j in (p.job,)} == {
        (None, 1.0)
    }


def test_a_loop_that_another_loop_could_be_taken_for_is_compiled_itself() -> None:
    # Batch 64 in two updates of two microbatches: as many of the one as of the other.
    points = list_points(64, 128, batch={"wave": 16, "microbatch": 16, "updates": 2})
    _, jobs = jobs_of(points)
    accumulations = {point.plan.size: point.plan.accumulation for point in points}
    assert accumulations == {64: 2, 128: 4}
    counted = {j.config.batch.size: j.counted for j in jobs if j.program == "update"}
    assert counted == {128: 4}
    (alone,) = list_points(64, batch={"wave": 16, "microbatch": 16, "updates": 2})
    assert jobs_of([alone])[0][0]["update"][0].job.counted is None


def test_a_single_microbatch_has_no_loop_and_is_compiled_itself() -> None:
    recipes, jobs = jobs_of(list_points(8, 16, 32, 64, **FIXED, devices=8))
    assert sorted(j.config.batch.size for j in jobs if j.program == "update") == [8, 64]
    assert recipes[0]["update"][0].job.counted is None


def test_updates_that_measure_noise_are_each_compiled_themselves() -> None:
    _, jobs = jobs_of(list_points(16, 32, 64, **FIXED, measure={"noise_scale": True}))
    updates = [job for job in jobs if job.program == "update"]
    assert sorted((j.config.batch.size, j.counted) for j in updates) == [
        *((16, None), (32, None), (64, None))
    ]


def test_layers_on_a_line_are_those_of_the_sampler_alone() -> None:
    points = list_points(16, model={"layers": 10}, **FIXED)
    recipes, _ = jobs_of(points, layers=(2, 4))
    for name in ("sync", "prefill", "decode"):
        parts = recipes[0][name]
        assert [part.job.layers for part in parts] == [2, 4]
        assert [part.weight for part in parts] == [-3.0, 4.0]  # 10 = -3 x 2 + 4 x 4
        assert parts[0].job.as_line()["config"]["model"]["layers"] == 2
    assert [part.job.layers for part in recipes[0]["update"]] == [10]


def test_reference_and_split_layouts_add_programs() -> None:
    (plain,) = list_points(16)
    assert plain.programs == ("sync", "prefill", "decode", "update")
    (split,) = list_points(32, layouts=("fsdp_sampler_tensor",), objective={"kl_coefficient": 0.1})
    assert split.programs == ("sync", "prefill", "decode", "join", "score", "update")


@pytest.mark.parametrize(
    ("layers", "model", "part"),
    [
        ((2,), {"layers": 8}, "two different numbers of layers from 1 to the model's 8"),
        ((2, 2), {"layers": 8}, "two different numbers"),
        ((2, 9), {"layers": 8}, "the model's 8"),
        ((1, 2), {"layers": 8, "local_layers": (0,), "sliding_window": 4}, "all alike"),
    ],
)
def test_layers_that_make_no_line_are_refused(
    layers: tuple[int, ...], model: dict[str, Any], part: str
) -> None:
    with pytest.raises(UserError) as caught:
        check_layers(layers, change(CONFIG, model=model))
    assert part in str(caught.value)


def test_a_batch_that_does_not_map_is_refused_with_sizes_near_it() -> None:
    with pytest.raises(UserError) as caught:
        list_points(24, devices=16)
    assert "16" in str(caught.value)
