import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Response
from jax_rl.tasks.partition import Partition

TASK = Partition(TaskConfig(name="partition", difficulty=2))


def ask(text, task=TASK):
    """The problem that a prompt such as "137/3!5:" asks."""
    total, rest = text.removesuffix(":").split("/")
    parts, forbidden = rest.split("!")
    return task.ask(int(total), parts=int(parts), forbidden=int(forbidden))


def score(problem, text):
    """The reward, called as another process calls it."""
    reward = pickle.loads(pickle.dumps(TASK.reward))
    return reward(problem, Response(text=text, tokens=len(text) + 1, ended=True, limit=99))


def solvable_prompts(difficulty):
    """Every prompt with an answer, found by trying all combinations."""
    numbers = range(10 ** (difficulty - 1), 10**difficulty)
    for forbidden, count in itertools.product("0123456789", (2, 3, 4)):
        allowed = [n for n in numbers if forbidden not in str(n)]
        for total in {sum(parts) for parts in itertools.combinations(allowed, count)}:
            yield f"{total}/{count}!{forbidden}:"


def test_by_hand():
    assert score(ask("137/3!5:"), "98+27+12") == 1.0
    assert score(ask("137/3!5:"), "12+98+27") == 1.0
    for wrong in ("98+27+13", "85+40+12", "98+39", "49+49+39", "137", "", "98+27+12="):
        assert score(ask("137/3!5:"), wrong) == 0.0
    assert score(ask("137/3!7:"), "98+27+12") == 0.0
    assert ask("137/3!5:").content == "137/3!5"
    assert ask("137/3!5:").prompt == "137/3!5:"


def test_draws_every_solvable_one_digit_prompt_and_no_other():
    task = Partition(TaskConfig(name="partition", difficulty=1))
    rng = np.random.default_rng(0)
    drawn = {task.draw(rng).prompt for _ in range(60_000)}
    expected = set(solvable_prompts(1))
    assert drawn == expected
    assert task.prompt_space == len(expected)
    for prompt in expected:
        problem = ask(prompt, task)
        assert score(problem, task.solve(problem, rng)) == 1.0


def test_solve_finds_the_tightest_totals():
    rng = np.random.default_rng(0)
    # Without 5: 10+11+12+13 and 99+98+97+96 are the only answers.
    assert sorted(TASK.solve(ask("46/4!5:"), rng).split("+")) == ["10", "11", "12", "13"]
    assert sorted(TASK.solve(ask("390/4!5:"), rng).split("+")) == ["96", "97", "98", "99"]
    with pytest.raises(UserError, match="no solution"):
        TASK.solve(ask("391/4!5:"), rng)


def test_solve_gives_every_right_response():
    rng = np.random.default_rng(0)
    responses = {TASK.solve(ask("25/2!0:"), rng) for _ in range(300)}
    assert responses == {"11+14", "14+11", "12+13", "13+12"}


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32), digits=st.integers(1, 3))
def test_solve_earns_the_full_reward(seed, digits):
    task = Partition(TaskConfig(name="partition", difficulty=digits))
    rng = np.random.default_rng(seed)
    problem = task.draw(rng)
    response = task.solve(problem, rng)
    assert score(problem, response) == 1.0
    first, _, rest = response.partition("+")
    assert score(problem, f"{rest}+{first}") == 1.0
    assert score(problem, f"{int(first) + 1}+{rest}") == 0.0
    assert score(problem, rest) == 0.0


@pytest.mark.parametrize("difficulty", [0, 4])
def test_refuses_a_difficulty_out_of_range(difficulty):
    with pytest.raises(UserError, match=f"task.difficulty = {difficulty}.*1 to 3"):
        Partition(TaskConfig(name="partition", difficulty=difficulty))
