import pytest

from jax_rl.rewards.base import Problem, Response
from jax_rl.rewards.exact import score_exact


@pytest.mark.parametrize(
    ("answer", "text", "reward"),
    [("yes", " yes\n", 1), (7, "7", 1), ("yes", "Yes", 0), ("yes", "yes.", 0), ("7", "7.0", 0)],
)
def test_exact_by_hand(answer, text, reward):
    response = Response(text=text, tokens=1, ended=True, limit=9)
    assert score_exact(Problem(prompt="p", content="p", answer=answer), response) == reward


def test_no_answer_is_a_failure():
    with pytest.raises(ValueError, match="no answer"):
        score_exact(Problem(prompt="p", content="p"), Response("", 1, True, 9))
