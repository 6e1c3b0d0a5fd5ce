import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.tasks.addition import Addition

TASK = Addition(TaskConfig(difficulty=2))


def test_by_hand():
    rng = np.random.default_rng(0)
    assert TASK.solve("47+85=", rng) == "132"
    assert TASK.reward("47+85=", "132") == 1.0
    assert TASK.reward("47+85=", "0132") == 1.0
    for wrong in ("131", "", "132=", "1320", "13"):
        assert TASK.reward("47+85=", wrong) == 0.0
    assert TASK.reward("0+0=", "0") == 1.0


def test_content_does_not_see_the_order_of_the_summands():
    assert TASK.content("9+85=") == TASK.content("85+9=") == "9+85"
    assert TASK.content("8+59=") != TASK.content("85+9=")


@given(seed=st.integers(0, 2**32), digits=st.integers(1, 18))
def test_solve_earns_the_full_reward(seed, digits):
    task = Addition(TaskConfig(difficulty=digits))
    rng = np.random.default_rng(seed)
    prompt = task.draw_prompt(rng)
    response = task.solve(prompt, rng)
    assert task.reward(prompt, response) == 1.0
    assert task.reward(prompt, str(int(response) + 1)) == 0.0
    assert task.tokenizer.decode(task.tokenizer.encode(prompt)) == prompt


def test_one_digit_prompts_are_the_55_of_its_space():
    task = Addition(TaskConfig(difficulty=1))
    rng = np.random.default_rng(0)
    contents = {task.content(task.draw_prompt(rng)) for _ in range(3000)}
    assert contents == {f"{a}+{b}" for a in range(10) for b in range(a, 10)}
    assert task.prompt_space == len(contents) == 55


@pytest.mark.parametrize("prompt", ["47+85", "47-85=", "+=", "47+85=1", "1+2+3=", "\uff14+5=", ""])
def test_refuses_a_prompt_of_another_form(prompt):
    with pytest.raises(UserError, match="not a prompt of addition"):
        TASK.reward(prompt, "132")


@pytest.mark.parametrize("difficulty", [0, 19])
def test_refuses_a_difficulty_out_of_range(difficulty):
    with pytest.raises(UserError, match=f"task.difficulty = {difficulty}.*1 to 18"):
        Addition(TaskConfig(difficulty=difficulty))
