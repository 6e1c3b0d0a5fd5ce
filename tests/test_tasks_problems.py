import json

import pytest

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.tasks.dataset import load_dataset
from jax_rl.tasks.prompts import training_problems, validation_problems


def write(tmp_path, name, prompts, answers=None):
    file = tmp_path / name
    answers = answers or range(len(prompts))
    rows = [{"prompt": p, "answer": a} for p, a in zip(prompts, answers, strict=True)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def load(**fields):
    return load_dataset(TaskConfig(name="dataset", **fields))


def prompts_of(problems):
    return [problem.prompt for problem in problems]


def test_problems_know_their_place_content_and_answer(tmp_path):
    path = write(tmp_path, "a.jsonl", ["one  two", "three"])
    task = load(train=path)
    assert [(p.prompt, p.content, p.answer, p.place) for p in task.training] == [
        ("one  two", "one two", 0, f"{path}:1"),
        ("three", "three", 1, f"{path}:2"),
    ]


def test_duplicates_are_dropped_and_noted_with_how_many_disagree(tmp_path):
    path = write(tmp_path, "a.jsonl", ["x", "y", " x\n", "x", "z"], [1, 2, 1, 9, 3])
    task = load(train=path)
    assert prompts_of(task.training) == ["x", "y", "z"]
    assert [problem.answer for problem in task.training] == [1, 2, 3]
    assert task.notes == (
        "task.train: rows left out that ask for what an earlier row asks for: 2, with another"
        f" answer: 1; the first is {path}:3, as {path}:1",
    )


def test_duplicates_are_kept_or_refused_as_asked(tmp_path):
    path = write(tmp_path, "a.jsonl", ["x", "y", "x "])
    kept = load(train=path, duplicates="keep")
    assert prompts_of(kept.training) == ["x", "y", "x "]
    assert kept.notes == ()
    with pytest.raises(UserError, match=rf"^{path}:3 asks for what {path}:1 asks for"):
        load(train=path, duplicates="refuse")
    distinct = write(tmp_path, "b.jsonl", ["x", "y"])
    assert len(load(train=distinct, duplicates="refuse").training) == 2


@pytest.mark.parametrize("duplicates", ["drop", "keep", "refuse"])
def test_training_rows_that_are_held_out_are_left_out_whatever_the_policy(tmp_path, duplicates):
    train = write(tmp_path, "a.jsonl", ["x", "y", "z"])
    test = write(tmp_path, "b.jsonl", ["w", " y", "y", "z"])
    task = load(train=train, validation=test, duplicates=duplicates)
    assert prompts_of(task.training) == ["x"]
    assert prompts_of(task.held_out) == ["w", " y", "z"]
    assert task.notes == (
        "task.validation: rows left out that ask for what an earlier row asks for: 1, with another"
        f" answer: 1; the first is {test}:3, as {test}:2",
        "task.train: rows left out that ask for what a row of task.validation asks for: 2; the"
        f" first is {train}:2, as {test}:2",
    )


def test_a_training_file_that_is_all_held_out_is_refused(tmp_path):
    path = write(tmp_path, "a.jsonl", ["x", "y"])
    with pytest.raises(UserError, match=r"every row is also in task.validation"):
        load(train=path, validation=path)


def test_a_file_is_needed():
    with pytest.raises(UserError, match=r"task.train has to name .* task 'dataset'"):
        load()


def test_held_out_rows_alone_can_be_evaluated_and_not_trained_on(tmp_path):
    task = load(validation=write(tmp_path, "a.jsonl", ["x", "y"]))
    assert [problem.prompt for problem in task.held_out] == ["x", "y"]
    assert len(validation_problems(task, 2, seed=0)) == 2
    with pytest.raises(UserError, match=r"no rows to train on: task.train has to name their file"):
        training_problems(task, seed=0, held_out=frozenset())
