"""A configuration on these devices, and what is told where it does not fit."""

from typing import Any

import pytest
from trainer_runs import CONFIG, change

from jax_rl.errors import UserError
from jax_rl.trainer.setup import prepare_run


def test_the_validation_set_is_filled_up_to_whole_shards() -> None:
    setup = prepare_run(change(CONFIG, validation={"prompts": 13}, run={"devices": 8}))
    assert len(setup.validation) == 13
    assert (setup.validation_plan.size, setup.validation_plan.rows_per_shard) == (16, 2)
    grouped = change(
        CONFIG,
        validation={"prompts": 13, "samples_per_prompt": 4, "temperature": 1.0, "wave": 16},
        run={"devices": 8},
    )
    plan = prepare_run(grouped).validation_plan
    assert (plan.prompts, plan.group, plan.waves, plan.wave) == (16, 4, 4, 16)


def test_the_held_out_set_depends_on_nothing_of_the_batch() -> None:
    sets = {
        prepare_run(change(CONFIG, batch=batch, run=run)).validation
        for batch in ({"size": 16}, {"size": 64, "group": 4})
        for run in ({"devices": 1}, {"devices": 8, "layout": "fsdp"}, {"seed": 3})
    }
    assert len(sets) == 1
    other = prepare_run(change(CONFIG, validation={"seed": 1})).validation
    assert {other} != sets


def test_greedy_is_the_sampler_of_temperature_zero_alone() -> None:
    assert prepare_run(CONFIG).validation_sampler.greedy
    assert not prepare_run(CONFIG).sampler.greedy
    warm = change(CONFIG, validation={"temperature": 0.7})
    assert not prepare_run(warm).validation_sampler.greedy


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            {"model": {"vocab": 31}},
            r"model\.vocab = 31 is smaller than the tokenizer, which has 32 tokens",
        ),
        ({"run": {"devices": 9}}, r"run\.devices = 9, but 8 cpu device\(s\) are here"),
        ({"run": {"devices": 8}, "batch": {"size": 20, "group": 4}}, r"batch\.size = 20 .*16, 24"),
        ({"run": {"layout": "fdsp"}}, "fdsp"),
        ({"task": {"name": "adition"}}, "did you mean 'addition'"),
        ({"objective": {"loss": "klip"}}, "did you mean 'clip'"),
        ({"objective": {"kl_estimator": "k9"}}, "k9"),
        ({"objective": {"denominator": "token"}}, "did you mean 'tokens'"),
        ({"objective": {"advantage": "grop"}}, "did you mean 'grpo'"),
        ({"batch": {"group": 1}}, "group"),
        ({"validation": {"prompts": 51}}, "at most half of them"),
        ({"task": {"max_prompt_length": 3}}, r"task\.max_prompt_length = 3 has to be at least 4"),
        (
            {"validation": {"wave": 6, "samples_per_prompt": 4, "temperature": 1.0}},
            r"validation\.wave = 6 .* a multiple of 4 part by part",
        ),
        (
            {"validation": {"wave": 12}, "run": {"devices": 8}},
            r"validation\.wave = 12 .* of 8 part",
        ),
    ],
)
def test_what_does_not_fit_is_refused(tables: dict[str, dict[str, Any]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        prepare_run(change(CONFIG, **tables))
