import json
import subprocess
import sys

import pytest

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Response
from jax_rl.tasks.math import load_math


def write(tmp_path, *rows):
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def load(tmp_path, *rows, **fields):
    return load_math(TaskConfig(name="math", train=write(tmp_path, *rows), **fields))


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ({"solution": r"First \boxed{1}, then $\boxed{\frac{1}{2}}$."}, r"\frac{1}{2}"),
        ({"solution": r"\boxed{1}", "answer": r"\sqrt{2}"}, r"\sqrt{2}"),
        ({"answer": r"\boxed{(3, \infty)}"}, r"(3, \infty)"),
        ({"answer": 204}, "204"),
    ],
)
def test_the_answer_is_what_is_boxed_or_the_answer_column(tmp_path, row, answer):
    (problem,) = load(tmp_path, {"problem": "What?", **row}).training
    assert problem.answer == answer
    assert problem.prompt.startswith("What?\n\n") and problem.prompt.endswith(r"\boxed{}.")


def test_a_solution_without_a_box_is_no_answer(tmp_path):
    rows = [{"problem": "What?", "solution": text} for text in (r"\boxed{1}", "It is 2.")]
    with pytest.raises(UserError, match=r"jsonl:2: no \\boxed\{\} .* ends with 'It is 2.'"):
        load(tmp_path, *rows)
    named = load(tmp_path, {"problem": "What?", "gold": "2"}, answer_column="gold")
    assert named.training[0].answer == "2"


def test_equal_values_in_another_form_are_right(tmp_path):
    pytest.importorskip("math_verify")
    task = load(tmp_path, {"problem": "What?", "solution": r"\boxed{\frac{1}{2}}"})
    assert not task.quick_reward
    for text, score in (
        (r"So \boxed{0.5}", 1.0),
        (r"\boxed{\frac{2}{4}}", 1.0),
        (r"\boxed{2}", 0.0),
    ):
        response = Response(text=text, tokens=9, ended=True, limit=99)
        assert task.reward(task.training[0], response) == score


def test_without_math_verify_the_rows_load_and_the_reward_says_what_to_do(tmp_path):
    program = (
        "import sys; sys.modules['math_verify'] = None\n"
        "from jax_rl.config import TaskConfig\n"
        "from jax_rl.errors import UserError\n"
        "from jax_rl.tasks.base import load_task\n"
        "task = load_task(TaskConfig(name='math', train=sys.argv[1]))\n"
        "print(len(task.training))\n"
        "try: task.reward\n"
        "except UserError as error: print(error)"
    )
    path = write(tmp_path, {"problem": "What?", "answer": "1"})
    out = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True)
    assert out.stdout.startswith("1\n"), out.stderr
    assert "pip install 'jax-rl[math]'" in out.stdout
    assert 'reward.verifiers = ["numeric"]' in out.stdout
