"""Which problem comes when, and its tokens: held-out problems, and those of training by group.

The problem of group g is a pure function of (seed, g), whatever the batch, the order of access
or the number of readers; the generator's stream, and so the problem, is that of the installed
NumPy, which the run's record names.
"""

import dataclasses
from collections.abc import Generator, Iterator, Sequence

import numpy as np

from jax_rl.errors import UserError
from jax_rl.rewards.base import Problem
from jax_rl.tasks.base import RowsTask, Task, has_rows, is_drawn
from jax_rl.tasks.columns import show
from jax_rl.tasks.drawn import DrawnProblems, Fits, draw_example, draw_validation
from jax_rl.tasks.epochs import EpochProblems, hold_out
from jax_rl.tasks.problems import Rows
from jax_rl.text.base import Tokenizer

_READ_AHEAD = 2


def validation_problems(
    task: Task, count: int, *, seed: int, fits: Fits | None = None
) -> tuple[Problem, ...]:
    """The held-out set: `count` problems, all of different content; a smaller set is its start.

    Drawn ones are drawn from a stream of their own. Rows come from `task.held_out` if it has
    any, else from `task.training`, in the order of a permutation by the seed.

    Raises:
      UserError: the set would take more than half of the task's contents from training, or
        there are fewer held-out rows.
    """
    if is_drawn(task):
        return draw_validation(task, count, seed=seed, fits=fits)
    if has_rows(task):
        return hold_out(task, count, seed=seed)
    raise TypeError(f"{task!r} is neither a DrawnTask nor a RowsTask")


def training_problems(
    task: Task, *, seed: int, held_out: frozenset[str], fits: Fits | None = None
) -> Sequence[Problem]:
    """The problem of every group, a pure function of (seed, g); slices are cheap.

    Args:
      task: drawn, or with rows, of which each epoch gives a permutation.
      seed: from 0 to 2^64 - 1.
      held_out: contents that never come up.
      fits: drawn problems that do not are drawn again; rows are left out by `drop_long`.

    Raises:
      UserError: every row is held out.
    """
    if is_drawn(task):
        return DrawnProblems(task, seed=seed, held_out=held_out, fits=fits)
    if has_rows(task):
        return EpochProblems(task, seed=seed, held_out=held_out)
    raise TypeError(f"{task!r} is neither a DrawnTask nor a RowsTask")


def worked_example(source: Sequence[Problem], g: int) -> tuple[Problem, str]:
    """Problem and response of supervised example g; held-out problems never come up.

    A pure function of (seed, g), from another stream than the problem of group g.

    Args:
      source: the training problems of a task that draws them.
      g: number of the example.

    Raises:
      UserError: the problems come from a data set, which has no worked responses.
    """
    if not isinstance(source, DrawnProblems):
        raise UserError(
            "warm_start.updates is above 0, but the task reads its problems from a data set and"
            " cannot write worked responses; set it to 0 and start from a checkpoint"
            " (model.checkpoint)"
        )
    return draw_example(source, g)


def problem_batches(
    source: Sequence[Problem], *, prompts: int, start_group: int
) -> Iterator[tuple[int, list[Problem]]]:
    """First group and problems of iteration after iteration, read ahead in a thread.

    Args:
      source: the problem of every group.
      prompts: prompts per iteration, P; the groups of an iteration are consecutive.
      start_group: group of the first prompt; to resume, the one after the last that was used.

    Returns:
      An iterator that ends when fewer than `prompts` groups are left; closing it ends the thread.
    """
    # Here and not in the generator: the import takes seconds, and no iteration should pay them.
    import grain

    if prompts < 1 or start_group < 0:
        raise ValueError(
            f"prompts = {prompts} must be at least 1, start_group = {start_group} at least 0"
        )
    # A whole iteration is one element: what grain costs for an element (27 us measured) is more
    # than what drawing a problem does (9 us).
    iterations = _Iterations(source, prompts=prompts, start_group=start_group)
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=_READ_AHEAD)
    reader = iter(grain.MapDataset.source(iterations).to_iter_dataset(options))

    def read() -> Generator[tuple[int, list[Problem]], None, None]:
        try:
            yield from reader
        finally:
            reader.close()

    return read()


@dataclasses.dataclass(frozen=True)
class _Iterations:
    """Element i is the first group of iteration i and its problems; grain's protocol."""

    source: Sequence[Problem]
    prompts: int = dataclasses.field(kw_only=True)
    start_group: int = dataclasses.field(kw_only=True)

    def __len__(self) -> int:
        return max(0, len(self.source) - self.start_group) // self.prompts

    def __getitem__(self, iteration: int) -> tuple[int, list[Problem]]:
        first = self.start_group + iteration * self.prompts
        return first, list(self.source[first : first + self.prompts])


def drop_long(
    task: RowsTask, tokenizer: Tokenizer, *, max_prompt_length: int, vocab: int, policy: str
) -> tuple[RowsTask, int]:
    """The task without the rows whose prompt is longer than the limit, and their number.

    Args:
      task: rows, held-out ones included; each is tokenized once.
      tokenizer: the policy's.
      max_prompt_length: tokens, the chat template's own included.
      vocab: rows of the policy's embedding; a row of the data that needs more is refused.
      policy: `task.long_prompts`: "refuse" raises, "drop" leaves them out and notes it.

    Raises:
      UserError: a row is too long, and the policy is "refuse"; or no training row is left.
    """
    rows = [*task.training, *task.held_out]
    lengths = [
        len(_encode(tokenizer, problem, row, vocab=vocab)) for row, problem in enumerate(rows)
    ]
    long = [length > max_prompt_length for length in lengths]
    if not any(long):
        return task, 0
    dropped, longest = sum(long), max(lengths)
    first = long.index(True)
    if policy == "refuse" or (task.training and all(long[: len(task.training)])):
        raise UserError(
            f"{_name(rows[first], first)} has {lengths[first]} tokens, and task.max_prompt_length"
            f" is {max_prompt_length}; {dropped} of {len(rows)} rows are longer, the longest with"
            f" {longest}. task.max_prompt_length = {longest} takes them all"
            + ("; task.long_prompts = 'drop' leaves them out" if policy == "refuse" else "")
        )
    kept = [problem for problem, is_long in zip(rows, long, strict=True) if not is_long]
    trained = len(task.training) - sum(long[: len(task.training)])
    fewer = Rows(
        name=task.name,
        training=tuple(kept[:trained]),
        held_out=tuple(kept[trained:]),
        quick_reward=task.quick_reward,
        find_reward=lambda: task.reward,
        notes=(
            *task.notes,
            f"rows left out with prompts of more than {max_prompt_length} tokens: {dropped} of"
            f" {len(rows)}; the longest has {longest}, the first is {rows[first].place}",
        ),
    )
    if task.held_out and not fewer.held_out:
        raise UserError(
            f"all {len(task.held_out)} rows of task.validation have prompts of more than"
            f" task.max_prompt_length = {max_prompt_length} tokens; the longest has {longest}"
        )
    return fewer, dropped


def encode_prompts(
    tokenizer: Tokenizer, problems: Sequence[Problem], *, max_prompt_length: int, vocab: int
) -> tuple[np.ndarray, np.ndarray]:
    """Token ids of the prompts, right-aligned: padding stands on the left.

    Args:
      tokenizer: the policy's.
      problems: n of them.
      max_prompt_length: tokens, the chat template's own included.
      vocab: rows of the policy's embedding; may be fewer than the tokenizer has ids.

    Returns:
      tokens: [n, max_prompt_length] int32.
      lengths: [n] int32; row i ends with its lengths[i] tokens.

    Raises:
      UserError: a prompt is too long, or has a token without a row in the embedding.
    """
    # The tokenizer's own pad id may lie outside the embedding; padding is masked by length.
    pad = tokenizer.pad_id if 0 <= tokenizer.pad_id < vocab else 0
    tokens = np.full((len(problems), max_prompt_length), pad, np.int32)
    lengths = np.zeros(len(problems), np.int32)
    for row, problem in enumerate(problems):
        ids = _encode(tokenizer, problem, row, vocab=vocab)
        if len(ids) > max_prompt_length:
            raise UserError(
                f"{_name(problem, row)} has {len(ids)} tokens, with those that open it;"
                f" task.max_prompt_length = {max_prompt_length} has to be at least {len(ids)}"
            )
        tokens[row, max_prompt_length - len(ids) :] = ids
        lengths[row] = len(ids)
    return tokens, lengths


def _encode(tokenizer: Tokenizer, problem: Problem, row: int, *, vocab: int) -> list[int]:
    """Ids of a prompt, each of which has a row in the embedding."""
    try:
        ids = tokenizer.encode_prompt(problem.prompt)
    except UserError as error:
        raise UserError(f"{_name(problem, row)}: {error}") from error
    if not ids:
        raise UserError(f"{_name(problem, row)} has no tokens, so nothing can follow it")
    if max(ids) >= vocab:
        place = next(i for i, token in enumerate(ids) if token >= vocab)
        raise UserError(
            f"{_name(problem, row)}: token {place} has id {ids[place]}, and the model's"
            f" embedding has {vocab} rows (model.vocab), for ids 0 to {vocab - 1}; the"
            f" tokenizer has {tokenizer.size} ids"
        )
    return ids


def _name(problem: Problem, row: int) -> str:
    """The problem in a message: its file and line, or its row, and how it begins."""
    shown = show(problem.prompt if isinstance(problem.prompt, str) else list(problem.prompt))
    return f"{problem.place}: prompt {shown}" if problem.place else f"prompt {shown} (row {row})"
