import json
import pickle

import pytest

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Response
from jax_rl.tasks.dataset import load_dataset


def load(tmp_path, *rows, **fields):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_dataset(TaskConfig(name="dataset", train=str(file), **fields))


def test_a_numeric_answer_is_scored(tmp_path):
    task = load(tmp_path, {"prompt": "2 + 3?", "answer": "5"}, {"prompt": "9?", "answer": 9.0})
    reward = pickle.loads(pickle.dumps(task.reward))
    for text, scores in (("It is 5.", [1, 0]), ("So 9", [0, 1]), ("?", [0, 0])):
        response = Response(text=text, tokens=3, ended=True, limit=9)
        assert [reward(problem, response) for problem in task.training] == scores


def test_columns_by_name_and_by_default(tmp_path):
    turns = [{"role": "user", "content": "2 + 3?"}]
    row = {"prompt": "p", "messages": turns, "q": "other", "answer": "1", "gold": "2"}
    assert load(tmp_path, row).training[0].prompt == "p"
    del row["prompt"]
    assert load(tmp_path, row).training[0].prompt == tuple(turns)
    problem = load(tmp_path, row, prompt_column="q", answer_column="gold").training[0]
    assert (problem.prompt, problem.answer) == ("other", "2")
    problem = load(tmp_path, row, template="{q}: {gold}?").training[0]
    assert (problem.prompt, problem.content, problem.answer) == ("other: 2?", "other: 2?", "1")


def test_a_csv_file_works_as_it_is(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text('prompt,answer\n"1,000 + 1?","1,001"\n')
    (problem,) = load_dataset(TaskConfig(name="dataset", train=str(file))).training
    assert (problem.prompt, problem.answer, problem.place) == ("1,000 + 1?", "1,001", f"{file}:2")


def test_answers_may_be_left_out_of_all_rows_if_no_number_is_compared(tmp_path):
    task = load(tmp_path, {"prompt": "x"}, {"prompt": "y"})
    assert [problem.answer for problem in task.training] == [None, None]
    with pytest.raises(UserError, match=r"rows.jsonl:1: no column 'answer' .*reward.verifiers"):
        _ = task.reward
    task = load(tmp_path, {"prompt": "x", "answer": 1}, {"prompt": "y", "answer": "Paris"})
    assert task.training[1].answer == "Paris"
    with pytest.raises(UserError, match=r"rows.jsonl:2: the answer 'Paris' is not one number"):
        _ = task.reward


@pytest.mark.parametrize(
    ("second", "fields", "match"),
    [
        ({"answer": "1"}, {}, r":2: no column 'prompt' \(task.prompt_column\). Columns"),
        ({"promt": "x", "answer": "1"}, {}, r":2: no column 'prompt' .*did you mean 'promt'\?"),
        ({"prompt": "x"}, {}, r":2: no column 'answer' \(task.answer_column\)"),
        ({"prompt": "x", "answer": None}, {}, r":2: column 'answer' .* is empty: None"),
        ({"prompt": "x", "answer": " "}, {}, r":2: column 'answer' .* is empty: ' '"),
        ({"prompt": "", "answer": "1"}, {}, r":2: column 'prompt' .* is empty"),
        ({"prompt": "x", "answer": "1"}, {"prompt_column": "q"}, r":1: no column 'q'"),
        ({"prompt": "x", "answer": "1"}, {"answer_column": "gold"}, r":1: no column 'gold'"),
        (
            {"prompt": "x", "answer": "1"},
            {"template": "{prompt}", "prompt_column": "prompt"},
            r"task.prompt_column = 'prompt' is not used with task.template",
        ),
    ],
)
def test_rows_that_cannot_be_used_are_refused_with_their_line(tmp_path, second, fields, match):
    with pytest.raises(UserError, match=match):
        load(tmp_path, {"prompt": "first", "answer": "0"}, second, **fields)
