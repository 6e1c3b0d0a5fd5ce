"""Processes that were given something else than process 0."""

import dataclasses
from typing import Any

import pytest
from trainer_runs import CONFIG, change

from jax_rl.errors import UserError
from jax_rl.trainer.agreement import _list_facts, check_agreement
from jax_rl.trainer.setup import prepare_run


@dataclasses.dataclass
class Pair:
    """A channel to one other process, of another setup."""

    other: Any
    index: int = 0
    count: int = 2

    def gather(self, value: Any) -> list[Any]:
        return [value, _list_facts(self.other)]


SETUP = prepare_run(CONFIG)


def test_the_same_is_no_difference() -> None:
    check_agreement(SETUP, Pair(prepare_run(CONFIG)))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"optimizer": {"learning_rate": 0.3}}, r"optimizer\.learning_rate is 0\.3 there and 0\.1"),
        ({"validation": {"seed": 1}}, r"validation\.seed is 1 there and 0 here"),
    ],
)
def test_another_configuration_is_named(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"process 1 differs from process 0: {message}"):
        check_agreement(SETUP, Pair(prepare_run(change(CONFIG, **tables))))


def test_other_data_are_named() -> None:
    other = prepare_run(CONFIG)
    other = dataclasses.replace(other, validation=other.validation[1:])
    with pytest.raises(UserError, match="the held-out set"):
        check_agreement(SETUP, Pair(other))
