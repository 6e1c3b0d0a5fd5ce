import numpy as np
import pytest

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.tasks.addition import Addition
from jax_rl.tasks.base import TASKS, has_rows, is_drawn, load_task

DRAWN = ("addition", "countdown", "partition")


class Half:
    """A task of one's own that forgot something."""

    name = "half"
    quick_reward = True
    reward = staticmethod(len)

    def __init__(self, config):
        pass

    def draw(self, rng):
        return None


class Nameless:
    quick_reward = True
    training = held_out = notes = ()

    def __init__(self, config):
        pass


class Whole(Nameless):
    name = "whole"

    @property
    def reward(self):
        raise UserError("looked at too early")


@pytest.mark.parametrize("name", DRAWN)
def test_loads_drawn_tasks_under_their_own_names(name):
    task = load_task(TaskConfig(name=name))
    assert task.name == name
    assert is_drawn(task) and not has_rows(task)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("dataset", '{"prompt": "1 + 1", "answer": "2"}'),
        ("gsm8k", '{"question": "1 + 1?", "answer": "It is 2. #### 2"}'),
        ("math", r'{"problem": "1 + 1?", "solution": "It is $\\boxed{2}$."}'),
        ("countdown", '{"nums": [1, 1], "target": 2}'),
    ],
)
def test_loads_tasks_of_files_under_their_own_names(name, row, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(row)
    task = load_task(TaskConfig(name=name, train=str(file)))
    assert task.name == name
    assert has_rows(task) and not is_drawn(task)
    assert len(task.training) == 1 and task.held_out == () and task.notes == ()


def test_the_table_has_no_other_tasks():
    assert set(TASKS) == {*DRAWN, "dataset", "gsm8k", "math", "reasoning_gym"}


def test_loads_a_task_of_ones_own():
    task = load_task(TaskConfig(name="jax_rl.tasks.addition:Addition", difficulty=1))
    assert isinstance(task, Addition)
    assert task.prompt_space == 55


def test_misspelt_name_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"task.name = 'aditon'.*'addition'"):
        load_task(TaskConfig(name="aditon"))


def test_a_class_of_neither_kind_is_refused_with_what_it_lacks():
    with pytest.raises(
        UserError,
        match=r"gives a Half.* no prompt_space, solve \(problems that are drawn\) or training,",
    ):
        load_task(TaskConfig(name=f"{__name__}:Half"))
    with pytest.raises(UserError, match=r"gives a Nameless.* no name, reward \(see"):
        load_task(TaskConfig(name=f"{__name__}:Nameless"))


def test_loading_does_not_ask_for_the_reward():
    task = load_task(TaskConfig(name=f"{__name__}:Whole"))
    with pytest.raises(UserError, match="too early"):
        _ = task.reward


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (TaskConfig(train="rows.jsonl"), "task.train = 'rows.jsonl' is not used by.*'addition'"),
        (TaskConfig(name="partition", template="{x}"), "task.template = '{x}' is not used"),
        (TaskConfig(long_prompts="drop"), "task.long_prompts = 'drop' is not used"),
        (
            TaskConfig(name="gsm8k", train="a.csv", dataset="chain_sum"),
            "task.dataset = 'chain_sum'",
        ),
        (TaskConfig(name="gsm8k", train="a.csv", difficulty=3), "task.difficulty = 3"),
        (TaskConfig(name="dataset", train="a.csv", difficulty=3), "task.difficulty = 3"),
        (TaskConfig(name="math", train="a.csv", dataset="x"), "task.dataset = 'x'"),
        (
            TaskConfig(name="countdown", train="a.csv", difficulty=3),
            "task.difficulty = 3 is not.*with files",
        ),
        (TaskConfig(name="reasoning_gym", train="a.csv"), "task.train = 'a.csv'"),
    ],
)
def test_fields_that_a_task_does_not_use_are_refused(config, match):
    with pytest.raises(UserError, match=match):
        load_task(config)


def test_draws_depend_on_the_generator_alone():
    for name in DRAWN:
        one, two = load_task(TaskConfig(name=name)), load_task(TaskConfig(name=name))
        assert one.draw(np.random.default_rng(7)) == two.draw(np.random.default_rng(7))
