import itertools
import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Response
from jax_rl.tasks.countdown import Countdown, load_countdown


def make(difficulty=3, **fields):
    return Countdown(TaskConfig(name="countdown", difficulty=difficulty, **fields))


def score(problem, text):
    """The reward, called as another process calls it."""
    reward = pickle.loads(pickle.dumps(make().reward))
    return reward(problem, Response(text=text, tokens=len(text), ended=True, limit=99))


def load(tmp_path, *rows, **fields):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_countdown(TaskConfig(name="countdown", train=str(file), **fields))


def test_by_hand():
    problem = make().ask([44, 19, 35], 98)
    assert problem.content == "19 35 44 = 98"
    assert problem.answer == {"numbers": [19, 35, 44], "target": 98}
    assert "[44, 19, 35]" in problem.prompt and " 98 " in problem.prompt
    assert score(problem, "<answer>44 + 19 + 35</answer>") == 1.0
    for wrong in ("44 + 19 + 34", "44 + 35 + 19 + 0", "98", "", "<answer>44 + 19</answer>"):
        assert score(problem, wrong) == 0.0
    # Only 7 * (9 - 5) is 28: plus and minus alone reach 3, 11 and 21.
    problem = make().ask([9, 5, 7], 28)
    assert score(problem, make().solve(problem, np.random.default_rng(0))) == 1.0


def test_content_does_not_see_the_order_of_the_numbers():
    assert make().ask([3, 1, 2], 6).content == make().ask([2, 3, 1], 6).content
    assert make().ask([3, 1, 2], 6).content != make().ask([3, 1, 2], 5).content


@given(seed=st.integers(0, 2**32), difficulty=st.integers(2, 4))
def test_solve_earns_the_full_reward(seed, difficulty):
    task = make(difficulty)
    rng = np.random.default_rng(seed)
    problem = task.draw(rng)
    numbers, target = problem.answer["numbers"], problem.answer["target"]
    assert len(numbers) == difficulty
    assert all(1 <= number <= 99 for number in numbers) and 1 <= target <= 999
    response = task.solve(problem, rng)
    assert score(problem, response) == 1.0
    assert eval(response) == target  # an independent reading, of text that is our own
    assert score(problem, f"{response}+0") == 0.0


def test_a_problem_without_a_solution_is_refused():
    with pytest.raises(UserError, match=r"^1 1 = 9: no expression"):
        make(2).solve(make(2).ask([1, 1], 9), np.random.default_rng(0))


def test_draws_reach_every_target_of_two_numbers():
    task = make(2)
    rng = np.random.default_rng(0)
    drawn = {}
    for _ in range(60_000):
        problem = task.draw(rng)
        drawn.setdefault(tuple(sorted(problem.answer["numbers"])), set()).add(
            problem.answer["target"]
        )
    # 4,950 pairs, each drawn 12 times on average; of 2 and 1 come 3, 1, 2 and 2.
    assert task.prompt_space == len(list(itertools.combinations_with_replacement(range(99), 2)))
    assert len(drawn) > 4900
    for (a, b), targets in drawn.items():
        right = {a + b, b - a, a * b} | ({b // a} if b % a == 0 else set())
        assert targets <= {value for value in right if 1 <= value <= 999}


def test_a_template_may_name_numbers_and_target():
    task = make(2, template="{numbers}={target}:{nums}")
    assert task.ask([3, 4], 7).prompt == "[3, 4]=7:[3, 4]"
    with pytest.raises(UserError, match="no column 'x'"):
        make(2, template="{x}").draw(np.random.default_rng(0))


@pytest.mark.parametrize("difficulty", [0, 1, 6])
def test_refuses_a_difficulty_out_of_range(difficulty):
    with pytest.raises(UserError, match=f"task.difficulty = {difficulty}.*2 to 5"):
        make(difficulty)


def test_rows_of_numbers_and_target_work_as_they_are(tmp_path):
    task = load(
        tmp_path,
        {"target": 98, "nums": [44, 19, 35]},
        {"target": 98.0, "nums": "[35, 44 19]"},
        {"target": "7", "nums": [3.0, 4]},
        template="Make {target} of {nums}.",
    )
    assert [(p.prompt, p.answer) for p in task.training] == [
        ("Make 98 of [44, 19, 35].", {"numbers": [19, 35, 44], "target": 98}),
        ("Make 7 of [3, 4].", {"numbers": [3, 4], "target": 7}),
    ]
    # The second row asks for the same as the first one.
    assert "asks for: 1, with another answer: 0" in task.notes[0]
    assert task.reward is make().reward


def test_drawn_problems_and_rows_are_asked_alike(tmp_path):
    (problem,) = load(tmp_path, {"numbers": [44, 19, 35], "target": 98}).training
    drawn = make().ask([44, 19, 35], 98)
    assert (problem.prompt, problem.content) == (drawn.prompt, drawn.content)


def test_rows_may_bring_their_own_prompt(tmp_path):
    row = {"nums": [3, 4], "target": 7, "q": "Seven from three and four?"}
    (problem,) = load(tmp_path, row, prompt_column="q").training
    assert (problem.prompt, problem.content) == (row["q"], "3 4 = 7")


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ({"nums": [3, 4]}, r":2: no column 'target'"),
        ({"target": 7}, r":2: no column 'nums'"),
        (
            {"nums": [3, "x"], "target": 7},
            r":2: column 'nums' has \[3, 'x'\], where a list of whole",
        ),
        ({"nums": [3, -4], "target": 7}, r":2: column 'nums'"),
        ({"nums": [], "target": 7}, r":2: column 'nums' has \[\]"),
        ({"nums": 3, "target": 7}, r":2: column 'nums' has 3"),
        ({"nums": [True, 4], "target": 7}, r":2: column 'nums'"),
        ({"nums": [3, 4], "target": 7.5}, r":2: column 'target' has 7.5, where a whole number"),
        ({"nums": [3, 4], "target": None}, r":2: column 'target' has None"),
    ],
)
def test_rows_of_another_form_are_refused_with_their_line(tmp_path, row, match):
    with pytest.raises(UserError, match=match):
        load(tmp_path, {"nums": [1, 2], "target": 3}, row)
