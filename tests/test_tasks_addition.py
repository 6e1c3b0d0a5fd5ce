import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem, Response
from jax_rl.tasks.addition import Addition
from jax_rl.text.characters import CharTokenizer


def score(problem, text):
    """The reward, called as another process calls it."""
    reward = pickle.loads(pickle.dumps(Addition(TaskConfig()).reward))
    return reward(problem, Response(text=text, tokens=len(text) + 1, ended=True, limit=99))


def test_by_hand():
    problem = Problem(prompt="47+85=", content="47+85", answer=132)
    assert Addition(TaskConfig()).solve(problem, np.random.default_rng(0)) == "132"
    assert score(problem, "132") == 1.0
    assert score(problem, "0132") == 1.0
    for wrong in ("131", "", "132=", "1320", "13"):
        assert score(problem, wrong) == 0.0
    assert score(Problem(prompt="0+0=", content="0+0", answer=0), "0") == 1.0


def test_draws_text_content_and_answer_of_the_same_sum():
    # Golden: the draws of NumPy's default_rng(3) are 81, 8.
    problem = Addition(TaskConfig(difficulty=2)).draw(np.random.default_rng(3))
    assert problem == Problem(prompt="81+8=", content="8+81", answer=89)


def test_content_does_not_see_the_order_of_the_summands():
    task = Addition(TaskConfig(difficulty=1))
    rng = np.random.default_rng(0)
    contents = {
        problem.prompt: problem.content for problem in (task.draw(rng) for _ in range(2000))
    }
    assert contents["9+8="] == contents["8+9="] == "8+9"
    assert contents["8+8="] != contents["8+9="]


@given(seed=st.integers(0, 2**32), digits=st.integers(1, 18))
def test_solve_earns_the_full_reward(seed, digits):
    task = Addition(TaskConfig(difficulty=digits))
    rng = np.random.default_rng(seed)
    problem = task.draw(rng)
    response = task.solve(problem, rng)
    assert score(problem, response) == 1.0
    assert score(problem, str(int(response) + 1)) == 0.0
    a, b = problem.prompt.removesuffix("=").split("+")
    assert int(a) + int(b) == int(response)
    tokenizer = CharTokenizer()
    assert tokenizer.decode(tokenizer.encode(problem.prompt)) == problem.prompt


def test_one_digit_prompts_are_the_55_of_its_space():
    task = Addition(TaskConfig(difficulty=1))
    rng = np.random.default_rng(0)
    contents = {task.draw(rng).content for _ in range(3000)}
    assert contents == {f"{a}+{b}" for a in range(10) for b in range(a, 10)}
    assert task.prompt_space == len(contents) == 55


@pytest.mark.parametrize("difficulty", [0, 19])
def test_refuses_a_difficulty_out_of_range(difficulty):
    with pytest.raises(UserError, match=f"task.difficulty = {difficulty}.*1 to 18"):
        Addition(TaskConfig(difficulty=difficulty))
