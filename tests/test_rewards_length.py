import pytest

from jax_rl.rewards.base import Problem, Response
from jax_rl.rewards.length import Length


@pytest.mark.parametrize(
    ("free", "tokens", "limit", "penalty"),
    [
        (0, 0, 10, 0),
        (0, 5, 10, 0.5),
        (100, 100, 200, 0),
        (100, 125, 200, 0.25),
        (100, 200, 200, 1),
        (200, 200, 200, 0),
        (300, 200, 200, 0),
    ],
)
def test_length_by_hand(free, tokens, limit, penalty):
    # Of characters there are always 3: tokens count.
    response = Response(text="abc", tokens=tokens, ended=True, limit=limit)
    assert Length(free)(Problem(prompt="p", content="p"), response) == penalty
