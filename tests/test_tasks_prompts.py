import dataclasses
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_rl.config import TaskConfig
from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem, Response
from jax_rl.tasks.addition import Addition
from jax_rl.tasks.base import load_task
from jax_rl.tasks.problems import Rows
from jax_rl.tasks.prompts import (
    drop_long,
    encode_prompts,
    problem_batches,
    training_problems,
    validation_problems,
    worked_example,
)
from jax_rl.tasks.streams import GROUPS
from jax_rl.text.characters import CharTokenizer

NOTHING: frozenset[str] = frozenset()
GOLDEN = ["85+12=", "48+47=", "32+84="]  # groups 0 to 2 of seed 11
seeds = st.integers(0, 2**64 - 1)
groups = st.integers(0, GROUPS - 1)
DRAWN = ["addition", "countdown", "partition"]
names = st.sampled_from(DRAWN)


def make_source(name="addition", *, seed=0, validation=0):
    task = load_task(TaskConfig(name=name))
    held_out = validation_problems(task, validation, seed=0) if validation else ()
    return training_problems(task, seed=seed, held_out=contents(held_out))


def contents(problems):
    return frozenset(problem.content for problem in problems)


def prompts_of(problems):
    return [problem.prompt for problem in problems]


def make_rows(training, held_out=()):
    """A task of rows with these prompts, lines 1, 2, ... of two files."""
    sides = [
        tuple(
            Problem(prompt=text, content=text, answer=i, place=f"{file}.jsonl:{i}")
            for i, text in enumerate(texts, start=1)
        )
        for file, texts in (("train", training), ("test", held_out))
    ]
    return Rows("rows", sides[0], sides[1], quick_reward=True, find_reward=lambda: len)


@given(name=names, seed=seeds, order=st.lists(groups, min_size=1, max_size=8))
def test_prompt_is_a_pure_function_of_seed_and_group(name, seed, order):
    forwards = make_source(name, seed=seed)
    backwards = make_source(name, seed=seed)
    expected = {g: forwards[g] for g in order}
    assert {g: backwards[g] for g in reversed(order)} == expected
    for g in order:
        assert backwards[g : g + 3][0] == backwards[max(g - 2, 0) : g + 1][-1] == expected[g]


def test_stream_is_philox_keyed_by_seed_and_group():
    # An independent reading of the law, and the prompts that a later NumPy has to give as well.
    source = make_source(seed=11)
    for g in (0, 1, 12345, GROUPS - 1):
        rng = np.random.Generator(np.random.Philox(key=np.array([11, g], np.uint64)))
        assert source[g].prompt == f"{rng.integers(100)}+{rng.integers(100)}="
    assert prompts_of(source[:3]) == GOLDEN


def test_seeds_groups_and_purposes_have_streams_of_their_own():
    source = make_source(seed=3)
    first = source[0:200]
    assert first != source[200:400]
    assert first != make_source(seed=4)[0:200]
    assert first != [worked_example(source, g)[0] for g in range(200)]
    # Two prompts are the same with a chance of 1 in 10,000.
    assert sum(a == b for a, b in zip(first, source[200:400], strict=True)) < 3
    assert list(validation_problems(source.task, 200, seed=3)) != first


@pytest.mark.parametrize("name", DRAWN)
def test_validation_never_occurs_in_training_or_examples(name):
    task = load_task(TaskConfig(name=name))
    held_out = contents(validation_problems(task, 1500, seed=5))
    assert len(held_out) == 1500
    source = training_problems(task, seed=5, held_out=held_out)
    assert not contents(source[0:20_000]) & held_out
    assert not contents(worked_example(source, g)[0] for g in range(2000)) & held_out
    # Without the held-out set, they do occur: the test can fail.
    free = training_problems(task, seed=5, held_out=NOTHING)
    assert contents(free[0:20_000]) & held_out


def test_summands_in_reverse_are_held_out_too():
    task = Addition(TaskConfig(difficulty=1))
    source = training_problems(task, seed=0, held_out=frozenset({"3+7"}))
    drawn = set(prompts_of(source[0:2000]))
    assert not drawn & {"3+7=", "7+3="}
    assert len(drawn) == 98


@settings(max_examples=20)
@given(name=names, seed=seeds, count=st.integers(1, 60), more=st.integers(0, 60))
def test_validation_set_is_distinct_and_a_smaller_one_is_its_start(name, seed, count, more):
    task = load_task(TaskConfig(name=name))
    problems = validation_problems(task, count + more, seed=seed)
    assert len(contents(problems)) == count + more
    assert problems[:count] == validation_problems(task, count, seed=seed)


def test_validation_set_of_up_to_half_of_the_space():
    task = Addition(TaskConfig(difficulty=1))
    assert len(validation_problems(task, 27, seed=0)) == 27
    for count in (28, 0):
        with pytest.raises(UserError, match=f"validation.prompts = {count}.*55.*half.*27"):
            validation_problems(task, count, seed=0)


def test_a_task_that_overstates_its_space_is_refused_instead_of_looping():
    task = Addition(TaskConfig(difficulty=1))
    task.prompt_space = 10_000
    with pytest.raises(UserError, match="prompt_space = 10000"):
        validation_problems(task, 56, seed=0)


def test_bad_seed_and_group():
    with pytest.raises(UserError, match="seed = -1"):
        make_source(seed=-1)[0]
    source = make_source()
    assert len(source) == GROUPS
    for g in (-1, GROUPS):
        with pytest.raises(IndexError, match=f"group {g}"):
            source[g]
        with pytest.raises(IndexError, match=f"group {g}"):
            worked_example(source, g)


@given(name=names, seed=seeds, g=groups)
def test_worked_example_is_right_and_pure(name, seed, g):
    source = make_source(name, seed=seed)
    problem, text = worked_example(source, g)
    response = Response(text=text, tokens=len(text) + 1, ended=True, limit=99)
    assert source.task.reward(problem, response) == 1.0
    assert worked_example(make_source(name, seed=seed), g) == (problem, text)


@pytest.mark.parametrize("prompts", [1, 4, 6])
def test_batches_hand_out_the_groups_in_order_whatever_their_size(prompts):
    source = make_source(validation=512)
    batches = problem_batches(source, prompts=prompts, start_group=0)
    taken = [next(batches) for _ in range(12 // prompts)]
    batches.close()
    assert [first for first, _ in taken] == list(range(0, 12, prompts))
    assert [problem for _, problems in taken for problem in problems] == source[0:12]


def test_resumed_batches_equal_the_continuation():
    source = make_source(validation=512)
    whole = problem_batches(source, prompts=8, start_group=0)
    expected = [next(whole) for _ in range(6)]
    whole.close()
    # The start need not be a multiple of the batch: a run may have had another one before.
    resumed = problem_batches(source, prompts=8, start_group=24)
    assert [next(resumed) for _ in range(3)] == expected[3:]
    resumed.close()
    odd = problem_batches(source, prompts=5, start_group=3)
    assert next(odd) == (3, source[3:8])
    odd.close()


def test_batches_end_with_the_source_and_close_their_thread():
    before = threading.active_count()
    batches = list(problem_batches(["a", "b", "c", "d", "e"], prompts=2, start_group=0))
    assert batches == [(0, ["a", "b"]), (2, ["c", "d"])]
    endless = problem_batches(make_source(), prompts=2, start_group=0)
    next(endless)
    endless.close()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_an_error_in_the_source_reaches_the_reader():
    task = Addition(TaskConfig(difficulty=1))
    everything = frozenset(f"{a}+{b}" for a in range(10) for b in range(a, 10))
    batches = problem_batches(
        training_problems(task, seed=0, held_out=everything), prompts=2, start_group=0
    )
    with pytest.raises(UserError, match="held out"):
        next(batches)


def test_batches_refuse_no_prompts_and_a_negative_start():
    for prompts, start_group in ((0, 0), (1, -1)):
        with pytest.raises(ValueError, match="at least"):
            problem_batches(["a"], prompts=prompts, start_group=start_group)


def test_the_module_does_not_need_grain():
    program = (
        "import sys; sys.modules['grain'] = None\n"
        "from jax_rl.config import TaskConfig\n"
        "from jax_rl.tasks.base import load_task\n"
        "from jax_rl.tasks.prompts import training_problems\n"
        "source = training_problems(load_task(TaskConfig()), seed=11, held_out=frozenset())\n"
        "print([problem.prompt for problem in source[:3]])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert out.stdout.strip() == str(GOLDEN), out.stderr


def ask(*texts):
    return [Problem(prompt=text, content=text) for text in texts]


def test_encoded_prompts_stand_on_the_right():
    tokens, lengths = encode_prompts(
        CharTokenizer(), ask("1+2=", "47+85="), max_prompt_length=8, vocab=32
    )
    np.testing.assert_array_equal(
        tokens, [[0, 0, 0, 1, 4, 13, 5, 17], [0, 1, 7, 10, 13, 11, 8, 17]]
    )
    np.testing.assert_array_equal(lengths, [5, 7])
    assert tokens.dtype == lengths.dtype == np.int32


def test_too_long_a_prompt_is_refused_with_its_place_and_text():
    tokenizer = CharTokenizer()
    with pytest.raises(UserError, match=r"'47\+85=' \(row 1\) has 7 tokens.*at least 7"):
        encode_prompts(tokenizer, ask("1+2=", "47+85="), max_prompt_length=6, vocab=32)
    read = make_rows(["1+2=", "9+9+9+9="]).training
    with pytest.raises(UserError, match=r"^train.jsonl:2: prompt '9\+9.* has 9 tokens"):
        encode_prompts(tokenizer, read, max_prompt_length=6, vocab=32)


def test_a_token_without_a_row_in_the_embedding_is_refused():
    tokenizer = CharTokenizer()
    # "=" has id 17: the model needs 18 rows.
    tokens, _ = encode_prompts(tokenizer, ask("1+2="), max_prompt_length=5, vocab=18)
    assert tokens.max() == 17
    with pytest.raises(UserError, match=r"token 4 has id 17, and .* has 17 rows.* 32 ids"):
        encode_prompts(tokenizer, ask("1+2="), max_prompt_length=5, vocab=17)


def test_padding_lies_in_the_embedding_even_if_the_pad_token_does_not():
    tokenizer = dataclasses.replace(CharTokenizer(), pad_id=31)
    tokens, _ = encode_prompts(tokenizer, ask("1="), max_prompt_length=4, vocab=18)
    np.testing.assert_array_equal(tokens, [[0, 1, 4, 17]])
    tokens, _ = encode_prompts(tokenizer, ask("1="), max_prompt_length=4, vocab=32)
    np.testing.assert_array_equal(tokens, [[31, 1, 4, 17]])


def test_long_rows_are_refused_with_the_first_their_number_and_the_limit_that_would_do():
    task = make_rows(["1=", "12345=", "1234=", "3="], ["1234567="])
    # With bos: 3, 7, 6, 3 and 9 tokens.
    with pytest.raises(
        UserError,
        match=r"^train.jsonl:2: .*'12345=' has 7 tokens.* is 5; 3 of 5 rows.*max_prompt_length = 9",
    ):
        drop_long(task, CharTokenizer(), max_prompt_length=5, vocab=32, policy="refuse")
    assert drop_long(task, CharTokenizer(), max_prompt_length=9, vocab=32, policy="refuse") == (
        task,
        0,
    )


def test_long_rows_are_dropped_and_noted():
    task = make_rows(["1=", "12345=", "1234=", "3="], ["1=", "1234567="])
    fewer, dropped = drop_long(task, CharTokenizer(), max_prompt_length=6, vocab=32, policy="drop")
    assert dropped == 2
    assert prompts_of(fewer.training) == ["1=", "1234=", "3="]
    assert prompts_of(fewer.held_out) == ["1="]
    (note,) = fewer.notes
    assert "prompts of more than 6 tokens: 2 of 6; the longest has 9" in note
    assert "the first is train.jsonl:2" in note
    assert (fewer.name, fewer.quick_reward, fewer.reward) == ("rows", True, len)


def test_dropping_every_row_is_refused():
    for training, held_out, match in (
        (["12=", "13="], [], "2 of 2 rows"),
        (["1="], ["12="], "all 1 rows of task.validation"),
    ):
        task = make_rows(training, held_out)
        with pytest.raises(UserError, match=match):
            drop_long(task, CharTokenizer(), max_prompt_length=3, vocab=32, policy="drop")


def test_a_row_that_cannot_be_encoded_is_named():
    task = make_rows(["1=", "hello"])
    with pytest.raises(UserError, match=r"^train.jsonl:2: prompt 'hello': character 'h'"):
        drop_long(task, CharTokenizer(), max_prompt_length=9, vocab=32, policy="refuse")
    with pytest.raises(UserError, match=r"^train.jsonl:2: prompt 'hello': character 'h'"):
        encode_prompts(CharTokenizer(), task.training, max_prompt_length=9, vocab=32)
    small = make_rows(["1=", "12="])
    with pytest.raises(UserError, match=r"^train.jsonl:1: .*embedding has 5 rows"):
        drop_long(small, CharTokenizer(), max_prompt_length=9, vocab=5, policy="drop")


def test_drawn_problems_that_do_not_fit_are_drawn_again():
    task = Addition(TaskConfig())

    def fits(problem):
        return len(problem.prompt) <= 4

    held_out = validation_problems(task, 16, seed=0, fits=fits)
    assert all(map(fits, held_out))
    source = training_problems(task, seed=0, held_out=NOTHING, fits=fits)
    plain = training_problems(task, seed=0, held_out=NOTHING)
    assert all(map(fits, source[:50])) and not all(map(fits, plain[:50]))
    # Those that do fit come up as they did.
    assert all(source[g] == plain[g] for g in range(50) if fits(plain[g]))
    with pytest.raises(UserError, match=r"taken already or too long.*max_prompt_length"):
        training_problems(task, seed=0, held_out=NOTHING, fits=lambda problem: False)[0]


def test_rows_have_no_worked_examples():
    source = training_problems(make_rows(["1="]), seed=0, held_out=NOTHING)
    with pytest.raises(UserError, match=r"warm_start.updates.*model.checkpoint"):
        worked_example(source, 0)


def test_reading_ahead_is_no_bottleneck():
    batches = problem_batches(make_source(validation=512), prompts=512, start_group=0)
    next(batches)
    start = time.perf_counter()
    for _ in range(10):
        next(batches)
    seconds = time.perf_counter() - start
    batches.close()
    assert 10 * 512 / seconds > 10_000  # about 100,000; the rest is room for a busy machine
