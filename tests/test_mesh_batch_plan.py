"""Batch plans, worked by hand."""

import dataclasses
import re

import pytest
from programs import LAYOUTS

from jax_rl.config import BatchConfig
from jax_rl.errors import UserError
from jax_rl.mesh.batch_plan import BatchPlan, plan_batch
from jax_rl.mesh.devices import resolve_sizes
from jax_rl.mesh.layout_file import load_layout


def plan(name="replicated", devices=8, **batch):
    layout = load_layout(LAYOUTS / f"{name}.toml")
    return plan_batch(BatchConfig(**batch), layout, resolve_sizes(layout, devices))


def test_one_device_takes_everything_at_once():
    assert plan(devices=1, size=128, group=8) == BatchPlan(
        size=128,
        prompts=16,
        group=8,
        shards=1,
        decoding_shards=1,
        rows_per_shard=128,
        waves=1,
        wave=128,
        prefill_rows=16,
        copies=8,
        updates=1,
        minibatch=128,
        microbatch=128,
        accumulation=1,
    )


def test_a_group_of_64_lies_on_shards_of_8_rows():
    # 64 rollouts of one prompt on 8 devices: each prefills the prompt once for its 8 rows.
    found = plan(size=64, group=64)
    assert (found.prompts, found.rows_per_shard) == (1, 8)
    assert (found.prefill_rows, found.copies) == (8, 8)


def test_a_group_that_shards_cut_unevenly():
    # 6 rollouts x 4 prompts on 8 devices: 3 rows each, so 3 copies of each of 8 prefilled rows.
    found = plan(size=24, group=6)
    assert (found.rows_per_shard, found.copies, found.prefill_rows) == (3, 3, 8)
    # 4 x 6 rows on 8 devices: 3 rows each, groups of 4: only single rows share a prompt.
    found = plan(size=24, group=4)
    assert (found.rows_per_shard, found.copies, found.prefill_rows) == (3, 1, 24)


def test_waves_updates_and_microbatches_cut_the_batch():
    found = plan(size=256, group=8, wave=64, updates=2, microbatch=32)
    assert (found.waves, found.wave, found.rows_per_shard) == (4, 64, 8)
    assert (found.prefill_rows, found.copies) == (8, 8)
    assert (found.updates, found.minibatch, found.microbatch, found.accumulation) == (2, 128, 32, 4)
    assert found.describe() == (
        "256 rollouts = 32 prompts x 8; 4 wave(s) of 64 on 8 shard(s) (8 rows each, 8 prefilled"
        " x 8 copies); 2 update(s) of 128 = 4 x 32"
    )


def test_only_the_axes_that_split_the_batch_count():
    assert plan("tensor", size=8, group=8).shards == 1
    assert plan("fsdp_tensor", size=8, group=8).shards == 4
    assert plan("fsdp", size=8, group=8).shards == 8


def test_a_sampler_on_fewer_shards_than_the_learner():
    # 8 devices in two groups of four: the sampler has 2 shards of 32 rows, the learner 8 of 8.
    found = plan("fsdp_sampler_tensor", size=64, group=8)
    assert (found.shards, found.decoding_shards) == (8, 2)
    assert (found.rows_per_shard, found.copies, found.prefill_rows) == (32, 8, 8)
    assert found.describe() == (
        "64 rollouts = 8 prompts x 8; 1 wave(s) of 64 on 2 shard(s) (32 rows each, 8 prefilled"
        " x 8 copies); 1 update(s) of 64 = 1 x 64 on 8 shard(s)"
    )
    # A wave has to map onto the sampler's shards only, a microbatch onto the learner's only.
    found = plan("fsdp_sampler_tensor", size=24, group=4, wave=12, microbatch=8)
    assert (found.waves, found.rows_per_shard, found.accumulation) == (2, 6, 3)
    with pytest.raises(UserError, match=r"batch.wave = 9 does not .* 2 shards; .*: 6, 12, 18$"):
        plan("fsdp_sampler_tensor", size=72, group=3, wave=9)
    with pytest.raises(
        UserError, match=r"batch.size = 12 does not map .* 8 shards; .*: 8, 16, 24$"
    ):
        plan("fsdp_sampler_tensor", size=12, group=4)


def test_a_cache_on_more_shards_than_the_sampler_counts():
    # Weights and heads over four devices, the cache's rows over all eight.
    layout = load_layout(LAYOUTS / "fsdp_sampler_tensor.toml")
    layout = dataclasses.replace(layout, cache=(("batch", ("fsdp", "tensor")),))
    found = plan_batch(BatchConfig(size=64, group=16), layout, resolve_sizes(layout, 8))
    assert (found.decoding_shards, found.rows_per_shard) == (8, 8)
    assert (found.copies, found.prefill_rows) == (8, 8)  # a prompt is prefilled on two devices


@pytest.mark.parametrize(
    ("batch", "field", "found"),
    [
        ({"size": 36, "group": 4}, "batch.size", 36),
        ({"size": 64, "group": 4, "wave": 4}, "batch.wave", 4),
        ({"size": 64, "group": 4, "microbatch": 4}, "batch.microbatch", 4),
        ({"size": 64, "group": 4, "microbatch": 1}, "batch.microbatch", 1),
        ({"size": 96, "group": 4, "updates": 2, "microbatch": 12}, "batch.microbatch", 12),
        ({"size": 96, "group": 4, "wave": 12}, "batch.wave", 12),
        ({"size": 160, "group": 4, "updates": 2, "microbatch": 20}, "batch.microbatch", 20),
        ({"size": 240, "group": 12, "wave": 60}, "batch.wave", 60),
    ],
)
def test_sizes_that_do_not_map_are_refused_with_sizes_that_do(batch, field, found):
    with pytest.raises(UserError, match=f"{field} = {found} does not map .* 8 shards") as caught:
        plan(**batch)
    named = [int(value) for value in re.findall(r"\d+", str(caught.value).split(":")[-1])]
    assert named
    for value in named:
        plan(**{**batch, field.removeprefix("batch."): value})
        if field != "batch.microbatch":
            assert value % batch["group"] == 0
        if field == "batch.size":
            continue
        whole = batch["size"]
        if field == "batch.microbatch":
            whole //= batch.get("updates", 1)
        assert whole % value == 0, "a size that does not divide what it cuts"


def test_a_minibatch_that_the_shards_do_not_divide_names_the_updates():
    # 24 rollouts in 3 updates of 8 fit 8 shards; in 2 updates of 12 they do not.
    assert plan(size=24, group=4, updates=3).accumulation == 1
    with pytest.raises(UserError, match=r"batch.updates = 2 .* of 12, .* 8 shards; valid: 1, 3$"):
        plan(size=24, group=4, updates=2)
