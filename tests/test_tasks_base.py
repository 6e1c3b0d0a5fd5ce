import pytest

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.tasks.addition import Addition
from jax_rl.tasks.base import TASKS, load_task


@pytest.mark.parametrize("name", sorted(TASKS))
def test_loads_every_built_in_task_under_its_own_name(name):
    assert load_task(TaskConfig(name=name)).name == name


def test_loads_a_task_of_ones_own():
    task = load_task(TaskConfig(name="jax_rl.tasks.addition:Addition", difficulty=1))
    assert isinstance(task, Addition)
    assert task.prompt_space == 55


def test_misspelt_name_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"task.name = 'aditon'.*'addition'"):
        load_task(TaskConfig(name="aditon"))
