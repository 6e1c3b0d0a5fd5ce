import json

import pytest

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Response
from jax_rl.tasks.gsm8k import load_gsm8k
from jax_rl.tasks.prompts import training_problems, validation_problems

ROW = {
    "question": "Ann has 3 boxes of 400 pens. How many pens is that?",
    "answer": "She has 3 * 400 = <<3*400=1200>>1200 pens.\n#### 1,200",
}


def load(tmp_path, *rows, **fields):
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_gsm8k(TaskConfig(name="gsm8k", train=str(file), **fields))


def test_the_published_format_works_as_it_is(tmp_path):
    task = load(tmp_path, ROW)
    (problem,) = task.training
    assert problem.prompt.startswith(ROW["question"] + "\n\n")
    assert problem.prompt.endswith("#### number")
    assert problem.answer == "1,200"
    assert problem.place.endswith("train.jsonl:1")
    for text, score in (
        (ROW["answer"], 1.0),
        ("So it is 1200", 1.0),
        ("#### 1200.00", 1.0),
        ("#### 1201", 0.0),
        ("", 0.0),
    ):
        response = Response(text=text, tokens=9, ended=True, limit=99)
        assert task.reward(problem, response) == score


def test_columns_and_template_can_be_others(tmp_path):
    row = {"q": "x?", "a": "#### 3 pens are too few.\n#### -7"}
    (problem,) = load(tmp_path, row, prompt_column="q", answer_column="a").training
    assert problem.prompt.startswith("x?\n\n") and problem.answer == "-7"
    (problem,) = load(tmp_path, ROW, template="Q: {question}\nA:").training
    assert problem.prompt == f"Q: {ROW['question']}\nA:"


def test_rows_are_held_out_if_there_is_no_validation_file(tmp_path):
    rows = [{"question": f"What is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(10)]
    task = load(tmp_path, *rows)
    held_out = {problem.content for problem in validation_problems(task, 4, seed=0)}
    source = training_problems(task, seed=0, held_out=frozenset(held_out))
    trained = {problem.content for problem in source[:100]}
    assert len(held_out) == 4 and len(trained) == 6 and not held_out & trained


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ({**ROW, "answer": "1200"}, r":2: answers of gsm8k end with ####.*'1200'"),
        ({**ROW, "answer": "#### none"}, r":2: answers of gsm8k end with ####"),
        ({**ROW, "answer": 1200}, r":2: column 'answer' .* has 1200, where a text is right"),
        ({"question": "x?"}, r":2: no column 'answer'"),
        ({**ROW, "question": " "}, r":2: column 'question' .* is empty"),
        ({"problem": "x?", "answer": "#### 1"}, r":2: no column 'question'"),
    ],
)
def test_rows_of_another_form_are_refused_with_their_line(tmp_path, row, match):
    with pytest.raises(UserError, match=match):
        load(tmp_path, ROW, row)
