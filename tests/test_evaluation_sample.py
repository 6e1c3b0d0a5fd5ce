"""Reading what a policy says to held-out prompts."""

import pytest
from trainer_runs import CONFIG, change

from jax_rl.errors import UserError
from jax_rl.evaluation.sample import Sampled, sample


def test_samples_are_shown_with_their_rewards(capsys: pytest.CaptureFixture[str]) -> None:
    found = sample(CONFIG, prompts=16)
    shown = capsys.readouterr().out.splitlines()
    assert len(found) == len(shown) == 16
    assert len({one.prompt for one in found}) == 16
    for one, line in zip(found, shown, strict=True):
        assert one.reward == pytest.approx(0.2 * one.response.count("7"))
        assert line.startswith(f"{one.prompt}{one.response}  reward {one.reward:g}")
        assert ("cut at the length limit" in line) == (not one.ended)
        assert len(one.response) + one.ended <= one.tokens <= 4  # special tokens are not shown


def test_seed_and_temperature_of_samples() -> None:
    def say(seed: int, temperature: float | None) -> list[Sampled]:
        return sample(CONFIG, prompts=16, seed=seed, temperature=temperature)

    plain = say(0, None)
    assert plain == say(0, 1.0)  # the configuration's
    other = say(1, None)
    assert [one.prompt for one in plain] == [one.prompt for one in other]
    assert plain != other
    greedy = say(0, 0.0)
    assert greedy == say(1, 0.0)  # greedy has no seed
    assert greedy != plain


def test_a_failed_reward_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    found = sample(change(CONFIG, task={"name": "trainer_runs:SometimesBroken"}), prompts=16)
    assert [one.reward is None for one in found] == [
        one.response[:1] in set("01234") for one in found
    ]
    assert any(one.reward is None for one in found)
    assert "reward failed" in capsys.readouterr().out


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(UserError, match=r"validation.prompts = 0 must be above 0"):
        sample(CONFIG, prompts=0)
    with pytest.raises(UserError, match=r"validation.seed = -1 must be 0 or above"):
        sample(CONFIG, seed=-1)
