"""Which prompt comes when: held-out validation prompts, and training prompts by group.

The prompt of group g is a pure function of (seed, g), whatever the batch, the order of access
or the number of readers; the generator's stream, and so the prompt, is that of the installed
NumPy, which the run's record names.
"""

import dataclasses
from collections.abc import Container, Generator, Iterator, Sequence
from typing import overload

import numpy as np

from jax_rl.errors import UserError
from jax_rl.tasks.base import Task
from jax_rl.tasks.tokenizer import Tokenizer

GROUPS = 2**31 - 1
# Word 3 of the Philox counter: streams of one (seed, g) that no number of draws can join.
_TRAINING, _VALIDATION, _EXAMPLES = 0, 1, 2
# Fruitless draws in a row, after which what is left of the task is taken to be out of reach.
_PATIENCE = 10_000
_READ_AHEAD = 2


class _Streams:
    """The generators of one (seed, stream), by group; one Philox is re-keyed for all of them.

    Re-keying takes a seventh of the time that a new bit generator does.
    """

    def __init__(self, seed: int, stream: int):
        if not 0 <= seed < 2**64:
            raise UserError(f"seed = {seed}: a seed of prompts is from 0 to 2^64 - 1")
        self._bits = np.random.Philox(key=seed, counter=stream << 192)
        self._rng = np.random.Generator(self._bits)
        self._state = self._bits.state

    def at(self, group: int) -> np.random.Generator:
        """The generator of this group, at its start; the one before it is no longer valid."""
        self._state["state"]["key"][1] = group
        self._bits.state = self._state
        return self._rng


def validation_prompts(task: Task, count: int, *, seed: int) -> tuple[str, ...]:
    """The held-out set: `count` prompts, all of different content; a smaller set is its start.

    Raises:
      UserError: the set would take more than half of the task's contents from training.
    """
    if not 1 <= count <= task.prompt_space // 2:
        raise UserError(
            f"validation.prompts = {count}: task {task.name!r} has {task.prompt_space} different"
            f" prompts, and at least 1 and at most half of them ({task.prompt_space // 2}) can be"
            " held out; change validation.prompts or raise task.difficulty"
        )
    rng = _Streams(seed, _VALIDATION).at(0)
    prompts: dict[str, str] = {}  # by content
    for _ in range(count):
        prompt, content = _draw_outside(task, rng, prompts)
        prompts[content] = prompt
    return tuple(prompts.values())


@dataclasses.dataclass(frozen=True)
class TrainingPrompts(Sequence[str]):
    """The prompts of training by group, as a random-access source in grain's protocol.

    `source[g]` is the prompt of group g, `source[a:b]` the list of those of groups a .. b - 1,
    at less than half the cost for each.
    """

    task: Task
    seed: int = dataclasses.field(kw_only=True)
    """From 0 to 2^64 - 1."""
    held_out: frozenset[str] = dataclasses.field(kw_only=True)
    """Contents that never come up."""

    def __len__(self) -> int:
        """Number of groups; more than any run reads."""
        return GROUPS

    @overload
    def __getitem__(self, group: int) -> str: ...

    @overload
    def __getitem__(self, group: slice) -> list[str]: ...

    def __getitem__(self, group: int | slice) -> str | list[str]:
        """The prompt of a group, or the prompts of a range of groups.

        Raises:
          IndexError: there is no such group.
          UserError: nothing but held-out prompts is drawn.
        """
        streams = _Streams(self.seed, _TRAINING)
        if isinstance(group, slice):
            return [self._draw(streams, g) for g in range(GROUPS)[group]]
        return self._draw(streams, _check_group(group))

    def _draw(self, streams: _Streams, group: int) -> str:
        return _draw_outside(self.task, streams.at(group), self.held_out)[0]


def worked_example(source: TrainingPrompts, g: int) -> tuple[str, str]:
    """Prompt and response of supervised example g; held-out prompts never come up.

    A pure function of (source.seed, g), from another stream than the prompt of group g.
    """
    rng = _Streams(source.seed, _EXAMPLES).at(_check_group(g))
    prompt, _ = _draw_outside(source.task, rng, source.held_out)
    return prompt, source.task.solve(prompt, rng)


def prompt_batches(
    source: Sequence[str], *, prompts: int, start_group: int
) -> Iterator[tuple[int, list[str]]]:
    """First group and prompts of iteration after iteration, read ahead in a thread.

    Args:
      source: the prompt of every group.
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
    # than what drawing a prompt does (9 us).
    iterations = _Iterations(source, prompts=prompts, start_group=start_group)
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=_READ_AHEAD)
    reader = iter(grain.MapDataset.source(iterations).to_iter_dataset(options))

    def read() -> Generator[tuple[int, list[str]], None, None]:
        try:
            yield from reader
        finally:
            reader.close()

    return read()


@dataclasses.dataclass(frozen=True)
class _Iterations:
    """Element i is the first group of iteration i and its prompts; grain's protocol."""

    source: Sequence[str]
    prompts: int = dataclasses.field(kw_only=True)
    start_group: int = dataclasses.field(kw_only=True)

    def __len__(self) -> int:
        return max(0, len(self.source) - self.start_group) // self.prompts

    def __getitem__(self, iteration: int) -> tuple[int, list[str]]:
        first = self.start_group + iteration * self.prompts
        return first, list(self.source[first : first + self.prompts])


def encode_prompts(
    tokenizer: Tokenizer, prompts: Sequence[str], *, max_prompt_length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Token ids of the prompts, right-aligned: padding stands on the left.

    Returns:
      tokens: [n, max_prompt_length] int32.
      lengths: [n] int32; row i ends with its lengths[i] tokens.

    Raises:
      UserError: a prompt is too long, or has a character without a token.
    """
    tokens = np.full((len(prompts), max_prompt_length), tokenizer.pad_id, np.int32)
    lengths = np.zeros(len(prompts), np.int32)
    for row, prompt in enumerate(prompts):
        ids = tokenizer.encode_prompt(prompt)
        if len(ids) > max_prompt_length:
            raise UserError(
                f"prompt {prompt!r} (row {row}) has {len(ids)} tokens, with the one that opens it;"
                f" task.max_prompt_length = {max_prompt_length} has to be at least {len(ids)}"
            )
        tokens[row, max_prompt_length - len(ids) :] = ids
        lengths[row] = len(ids)
    return tokens, lengths


def _draw_outside(
    task: Task, rng: np.random.Generator, contents: Container[str]
) -> tuple[str, str]:
    """The next prompt that is not among the contents, and its own content."""
    for _ in range(_PATIENCE):
        prompt = task.draw_prompt(rng)
        content = task.content(prompt)
        if content not in contents:
            return prompt, content
    raise UserError(
        f"task {task.name!r}: {_PATIENCE} prompts in a row were held out or taken already, though"
        f" the task states prompt_space = {task.prompt_space}; lower validation.prompts or raise"
        " task.difficulty"
    )


def _check_group(group: int) -> int:
    if not 0 <= group < GROUPS:
        raise IndexError(f"group {group} is not in 0 .. {GROUPS - 1}")
    return group
