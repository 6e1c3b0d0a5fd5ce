"""The first difference of two recorded configurations."""

from typing import Any

import pytest
from trainer_runs import change

from jax_rl.config import Config
from jax_rl.config_compare import Difference, find_difference
from jax_rl.config_file import config_to_dict

NAMES = ("model", "batch.group")


def make(**tables: Any) -> dict[str, Any]:
    return config_to_dict(change(Config(), **tables))


@pytest.mark.parametrize(
    ("tables", "found"),
    [
        ({}, None),
        ({"batch": {"size": 64}}, None),
        ({"model": {"mlp": 64}}, Difference("model.mlp", 192, 64)),
        ({"batch": {"group": 4}, "model": {"mlp": 64}}, Difference("model.mlp", 192, 64)),
        ({"batch": {"group": 4}}, Difference("batch.group", 8, 4)),
        ({"model": {"remat": "full"}}, None),
    ],
)
def test_the_first_difference_in_the_order_of_the_names(
    tables: dict[str, Any], found: Difference | None
) -> None:
    assert find_difference(make(), make(**tables), names=NAMES, free=("model.remat",)) == found


def test_a_field_that_was_not_there_had_its_default() -> None:
    old = make()
    del old["model"]["qk_norm"]
    assert find_difference(old, make(), names=NAMES) is None
    other = make(model={"qk_norm": False})
    assert find_difference(old, other, names=NAMES) == Difference("model.qk_norm", True, False)
