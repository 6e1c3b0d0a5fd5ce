"""Rows that several processes score, put together by row."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from jax_rl.errors import UserError
from jax_rl.rewards.score import Scores
from jax_rl.trainer.rollout import Responses, _list_own_rows
from jax_rl.trainer.scoring import exchange_scores


@dataclasses.dataclass
class Others:
    """A channel on which the other processes have said what they have."""

    values: list[Any]
    index: int = 0

    @property
    def count(self) -> int:
        return len(self.values) + 1

    def gather(self, value: Any) -> list[Any]:
        return [value, *self.values]


def make_part(rows: list[int], *, failed: tuple[int, ...] = ()) -> tuple[Responses, Scores]:
    """Row r has r + 1 tokens and the reward 10 r."""
    numbers = np.array(rows)
    responses = Responses(
        rows=numbers,
        tokens=np.zeros((len(rows), 9), np.int32),
        lengths=(numbers + 1).astype(np.int32),
        ended=numbers % 2 == 0,
        decode_steps=7,
    )
    valid = ~np.isin(numbers, failed)
    first = f"row {failed[0]}" if failed else None
    rewards = np.where(valid, 10.0 * numbers, 0.0).astype(np.float32)
    return responses, Scores(rewards, valid, len(failed), first, timeouts=len(failed))


def as_said(responses: Responses, scores: Scores) -> dict[str, Any]:
    own = {name: getattr(responses, name) for name in ("rows", "lengths", "ended")}
    return {**own, **dataclasses.asdict(scores)}


def test_uneven_parts_in_any_order_come_out_by_row() -> None:
    own = make_part([6, 1])
    others = [as_said(*make_part([0, 5, 2], failed=(5,))), as_said(*make_part([4, 3]))]
    batch = exchange_scores(*own, channel=Others(others), name="task")
    assert batch.lengths.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert batch.ended.tolist() == [True, False, True, False, True, False, True]
    assert batch.scores.rewards.tolist() == [0, 10, 20, 30, 40, 0, 60]
    assert batch.scores.valid.tolist() == [True] * 5 + [False, True]
    assert (batch.scores.failures, batch.scores.timeouts) == (1, 1)
    assert batch.scores.first_failure == "row 5"
    assert batch.decode_steps == 7


def test_all_of_one_process_may_fail_and_all_of_all_may_not() -> None:
    own = make_part([0, 1], failed=(0, 1))
    good, bad = as_said(*make_part([2, 3])), as_said(*make_part([2, 3], failed=(2, 3)))
    assert exchange_scores(*own, channel=Others([good]), name="task").scores.failures == 2
    with pytest.raises(UserError, match="failed on all 4 responses"):
        exchange_scores(*own, channel=Others([bad]), name="task")


@dataclasses.dataclass(frozen=True)
class Device:
    number: int
    process_index: int


def own_rows(places: list[tuple[int, slice]], count: int, monkeypatch: Any) -> list[list[int]]:
    """Rows of each process, where devices of `process` hold the rows of a slice."""
    indices = {Device(number, process): (rows,) for number, (process, rows) in enumerate(places)}
    found = []
    for process in sorted({process for process, _ in places}):
        monkeypatch.setattr("jax_rl.trainer.rollout.jax.process_index", lambda p=process: p)
        found.append(_list_own_rows(indices, count).tolist())
    return found


def test_every_row_is_scored_by_one_of_the_processes_that_hold_it(monkeypatch) -> None:
    halves = [(0, slice(0, 4)), (1, slice(4, 8))]
    assert own_rows(halves, 8, monkeypatch) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    # Held by all: dealt out.
    whole = [(process, slice(None)) for process in (0, 1, 2)]
    assert own_rows(whole, 8, monkeypatch) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    # Two processes hold each half.
    mixed = [(p, slice(4 * (p % 2), 4 * (p % 2) + 4)) for p in range(4)]
    assert own_rows(mixed, 8, monkeypatch) == [[0, 1], [4, 5], [2, 3], [6, 7]]
