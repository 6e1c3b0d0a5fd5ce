import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem
from jax_rl.tasks.problems import Rows
from jax_rl.tasks.prompts import problem_batches, training_problems, validation_problems
from jax_rl.tasks.streams import GROUPS

NOTHING: frozenset[str] = frozenset()


def make_rows(training, held_out=()):
    sides = [
        tuple(Problem(prompt=t, content=t.strip()) for t in side) for side in (training, held_out)
    ]
    return Rows("rows", sides[0], sides[1], quick_reward=True, find_reward=lambda: len)


def make_source(count=7, *, seed=0, held_out=NOTHING):
    return training_problems(
        make_rows([f"p{i}" for i in range(count)]), seed=seed, held_out=held_out
    )


def prompts_of(problems):
    return [problem.prompt for problem in problems]


@given(
    count=st.integers(1, 20),
    seed=st.integers(0, 2**64 - 1),
    order=st.lists(st.integers(0, 200) | st.integers(0, GROUPS - 5), min_size=1, max_size=10),
)
def test_problem_is_a_pure_function_of_seed_and_group(count, seed, order):
    forwards, backwards = make_source(count, seed=seed), make_source(count, seed=seed)
    expected = {g: forwards[g] for g in order}
    assert {g: backwards[g] for g in reversed(order)} == expected
    for g in order:
        assert backwards[g : g + 3][0] == expected[g]


def test_every_epoch_is_a_permutation_of_all_rows_and_they_differ():
    source = make_source(50, seed=4)
    epochs = [prompts_of(source[50 * e : 50 * (e + 1)]) for e in range(5)]
    rows = [f"p{i}" for i in range(50)]
    assert all(sorted(epoch) == sorted(rows) for epoch in epochs)
    assert len({tuple(epoch) for epoch in [rows, *epochs]}) == 6
    assert prompts_of(make_source(50, seed=5)[:50]) != epochs[0]


def test_the_order_is_philox_keyed_by_seed_and_epoch():
    # An independent reading of the law.
    source = make_source(7, seed=11)
    for epoch in (0, 1, 9):
        rng = np.random.Generator(np.random.Philox(key=np.array([11, epoch], np.uint64)))
        assert prompts_of(source[7 * epoch : 7 * epoch + 7]) == [
            f"p{i}" for i in rng.permutation(7)
        ]


def test_held_out_contents_never_come_up_nor_do_their_copies():
    task = make_rows(["a", "b", "c", " b", "d"])
    source = training_problems(task, seed=0, held_out=frozenset({"b"}))
    assert source.rows == 3
    assert set(prompts_of(source[:30])) == {"a", "c", "d"}
    with pytest.raises(UserError, match=r"all 5 rows of task.train are held out"):
        training_problems(task, seed=0, held_out=frozenset("abcd"))


def test_groups_end_where_those_of_drawn_tasks_do():
    source = make_source()
    assert len(source) == GROUPS
    for g in (-1, GROUPS):
        with pytest.raises(IndexError, match=f"group {g}"):
            source[g]
    with pytest.raises(UserError, match="seed = -1"):
        make_source(seed=-1)[0]


def test_batches_cross_the_end_of_an_epoch():
    source = make_source(7, seed=2)
    batches = problem_batches(source, prompts=5, start_group=3)
    taken = [next(batches) for _ in range(4)]
    batches.close()
    assert [first for first, _ in taken] == [3, 8, 13, 18]
    assert [problem for _, problems in taken for problem in problems] == source[3:23]


@pytest.mark.parametrize("own", [False, True])
def test_validation_set_is_distinct_and_a_smaller_one_is_its_start(own):
    texts = [f"p{i}" for i in range(30)]
    task = make_rows(["t"] if own else [*texts, " p3", "p4 "], [*texts, " p3"] if own else ())
    whole = validation_problems(task, 15, seed=3)
    assert len({problem.content for problem in whole}) == 15
    assert {problem.content for problem in whole} <= set(texts)
    for count in range(1, 15):
        assert validation_problems(task, count, seed=3) == whole[:count]
    other = validation_problems(task, 15, seed=4)
    assert other != whole and whole != task.training[:15]


def test_too_few_rows_are_refused_with_how_many_there_are():
    task = make_rows(["t"], ["a", "b", " b", "c"])
    assert len(validation_problems(task, 3, seed=0)) == 3
    for count in (0, 4):
        with pytest.raises(UserError, match=f"prompts = {count}: task.validation has 3 different"):
            validation_problems(task, count, seed=0)
    task = make_rows(["a", "b", "c", "d", "e", "a "])
    assert len(validation_problems(task, 2, seed=0)) == 2
    with pytest.raises(UserError, match=r"has 5 different prompts, of which at most half \(2\)"):
        validation_problems(task, 3, seed=0)
