"""The loop: whose time is whose, what is fetched, and that the rate that is said is used."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trainer_runs import CONFIG, alone, change, open_loop

from jax_rl.config import BatchConfig, Config, RunConfig
from jax_rl.rewards.base import Problem
from jax_rl.rewards.score import Scores
from jax_rl.sampler.generate import Rollouts
from jax_rl.trainer import loop as loop_module
from jax_rl.trainer import rollout
from jax_rl.trainer.clock import PhaseClock
from jax_rl.trainer.feed import Feed
from jax_rl.trainer.loop import Loop
from jax_rl.trainer.position import Position, Schedule
from jax_rl.trainer.programs import Programs, SamplerPrograms
from jax_rl.trainer.rollout import Responses, fetch_waves, join_responses, read_responses
from jax_rl.trainer.scoring import DirectScorer, join_scores
from jax_rl.trainer.setup import prepare_run
from jax_rl.trainer.steady import measure_steady


@dataclasses.dataclass(frozen=True)
class Work:
    """What a device will have finished at some time."""

    ready: float


class Machine:
    """A host and a device with one queue, in a time that only their work moves."""

    def __init__(self) -> None:
        self.time, self._free = 0.0, 0.0
        self.seconds = {
            "sync": 1.0,
            "prefill": 4.0,
            "decode": 6.0,
            "update": 20.0,
            "validation_decode": 7.0,
            "reward": 3.0,
            "prompts": 2.0,
        }

    def dispatch(self, name: str) -> Work:
        """The host goes on at once; the device begins when it is free."""
        self._free = max(self._free, self.time) + self.seconds[name]
        return Work(self._free)

    def wait(self, work: Work) -> None:
        self.time = max(self.time, work.ready)

    def spend(self, name: str) -> None:
        """Work of the host."""
        self.time += self.seconds[name]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Takes the place of everything in the loop that takes time."""
    made = Machine()
    values = {"counted": 1.0} | dict.fromkeys(
        (
            "reward",
            "tied_groups",
            "loss",
            "grad_norm",
            "clipped_gradient",
            "update_norm",
            "entropy",
            "ratio_clipped",
            "mismatch_mean",
            "mismatch_max",
        ),
        0.0,
    )

    def fetch_waves(rollouts: list[Work], steps: Any, problems: Any, **_: Any) -> Any:
        for wave in rollouts:
            made.wait(wave)
            ones = np.ones(16, np.int32)
            yield (
                Responses(
                    rows=np.arange(16),
                    tokens=np.zeros((16, 4), np.int32),
                    lengths=ones,
                    ended=ones.astype(bool),
                    decode_steps=1,
                ),
                problems,
            )

    make_batch = Feed.make_batch

    def make_slow_batch(self: Feed) -> Any:
        made.spend("prompts")
        return make_batch(self)

    monkeypatch.setattr(loop_module, "fetch", made.wait)
    monkeypatch.setattr(loop_module, "fetch_values", lambda metrics: dict(values))
    monkeypatch.setattr(loop_module, "fetch_waves", fetch_waves)
    monkeypatch.setattr(loop_module, "is_ready", lambda work: work.ready <= made.time)
    monkeypatch.setattr(loop_module.jax, "block_until_ready", made.wait)
    monkeypatch.setattr(Feed, "make_batch", make_slow_batch)
    return made


@dataclasses.dataclass(frozen=True)
class _State:
    weights: Work


@dataclasses.dataclass(frozen=True)
class _Scorer:
    """Scores in the host's own time, or in `behind` seconds of processes beside it."""

    machine: Machine
    behind: float = 0.0

    def submit(self, problems: Any, responses: Any) -> Any:
        if not self.behind:
            self.machine.spend("reward")
        return _Pending(self.machine, Work(self.machine.time + self.behind), len(responses))


@dataclasses.dataclass(frozen=True)
class _Pending:
    machine: Machine
    done: Work
    rows: int

    def result(self) -> Scores:
        self.machine.wait(self.done)
        return Scores(np.zeros(self.rows, np.float32), np.ones(self.rows, bool), 0, None)


def open_on(machine: Machine, *, behind: float = 0.0, **tables: dict[str, Any]) -> Loop:
    """A loop whose first prompts are made, at time 2."""

    def update(*args: Any) -> tuple[_State, Work]:
        done = machine.dispatch("update")
        return _State(done), done

    def decode(name: str) -> Any:
        return lambda *args: (machine.dispatch(name), None, None)

    def prefill(*args: Any) -> tuple[Work, Work]:
        done = machine.dispatch("prefill")
        return done, done

    setup = prepare_run(change(CONFIG, **tables))
    programs = Programs(
        sync=lambda weights: {"final_norm": machine.dispatch("sync")},
        sampler=SamplerPrograms(prefill, decode("decode")),
        join=lambda waves: waves[-1],
        update=update,
        score=None,
        validation=SamplerPrograms(prefill, decode("validation_decode")),
    )
    state: Any = _State(Work(0.0))  # all that the loop looks at
    with jax.set_mesh(setup.mesh):
        return Loop(
            setup,
            programs,
            state=state,
            reference=None,
            schedule=Schedule(0.1, 1),
            position=Position(),
            clock=PhaseClock(now=lambda: machine.time),
            scorer=_Scorer(machine, behind),
            channel=alone(),
        )


def shares(phases: dict[str, float]) -> dict[str, float]:
    return {name: seconds for name, seconds in phases.items() if seconds}


def test_each_phase_is_charged_for_its_own_work_in_the_pipeline(machine: Machine) -> None:
    loop = open_on(machine)
    assert machine.time == 2.0  # the first prompts: `other`, as no phase has been entered
    assert loop.iterate() is None
    first, second = loop.iterate(), loop.drain()
    loop.close()
    assert first is not None and second is not None
    # sync 2..3, generate 3..13, reward 13..16, update 16..36 with the next prompts behind it.
    # Nothing ran before, so that the first sync is waited for under `sync`.
    assert shares(first.phases) == {
        "other": 2.0,
        "sync": 1.0,
        "generate": 10.0,
        "reward": 3.0,
        "learn": 20.0,
    }
    assert (first.elapsed_seconds, first.hidden) == (36.0, {"prompts": 2.0})
    # The second was dispatched at 18 behind the update: sync 36..37, generate 37..47,
    # reward 47..50, update 50..70.
    assert shares(second.phases) == {"sync": 1.0, "generate": 10.0, "reward": 3.0, "learn": 20.0}
    assert (second.elapsed_seconds, second.training_seconds) == (70.0, 70.0)
    assert loop.clock.elapsed == machine.time == 70.0


def test_a_wave_is_scored_behind_the_next_one(machine: Machine) -> None:
    loop = open_on(machine, batch={"size": 32, "wave": 16}, validation={"every_samples": 32})
    loop.iterate()
    record = loop.drain()
    loop.close()
    assert record is not None
    # sync 2..3, the first wave 3..13 and its reward ..16, hidden; the second wave 13..23, ..26.
    assert shares(record.phases) == {
        "other": 2.0,
        "sync": 1.0,
        "generate": 20.0,
        "reward": 3.0,
        "learn": 20.0,
    }
    assert record.hidden == {"reward": 3.0, "prompts": 2.0}


def test_scoring_in_processes_is_waited_for_after_the_last_wave(machine: Machine) -> None:
    loop = open_on(
        machine, behind=5.0, batch={"size": 32, "wave": 16}, validation={"every_samples": 32}
    )
    loop.iterate()
    record = loop.drain()
    loop.close()
    assert record is not None
    # The first wave's scores are there at 18, before the second wave is at 23.
    assert shares(record.phases)["generate"] == 20.0
    assert shares(record.phases)["reward"] == 5.0


def test_prompts_slower_than_the_update_are_on_the_critical_path(machine: Machine) -> None:
    loop = open_on(machine)
    machine.seconds["prompts"] = 25.0
    loop.iterate()
    record = loop.drain()
    loop.close()
    assert record is not None
    assert (record.phases["learn"], record.hidden) == (25.0, {})


def test_validation_is_charged_and_dated_when_its_policy_was_ready(machine: Machine) -> None:
    loop = open_on(machine)
    _, start = loop.validate()
    # sync 2..3, prefill and decode 3..14, the reward of the responses 14..17.
    assert (start.elapsed_seconds, start.seconds) == (3.0, 14.0)
    assert start.training_seconds == 3.0
    loop.iterate()  # generate 17..27, reward ..30, update ..50; prompts ..32
    record, point = loop.validate()
    # sync 50..51, validate 51..65.
    assert record is not None
    assert shares(record.phases) == {
        "other": 2.0,
        "sync": 1.0,
        "validate": 14.0,
        "generate": 10.0,
        "reward": 3.0,
        "learn": 20.0,
    }
    assert (record.elapsed_seconds, record.training_seconds) == (50.0, 36.0)
    assert (point.elapsed_seconds, point.training_seconds, point.seconds) == (51.0, 37.0, 14.0)
    # The weights are synced once for the validation and the sampler after it.
    loop.iterate()
    following = loop.drain()
    loop.close()
    assert following is not None
    assert shares(following.phases) == {
        "sync": 1.0,
        "validate": 14.0,
        "generate": 10.0,
        "reward": 3.0,
        "learn": 20.0,
    }
    assert sum(record.phases.values()) + sum(following.phases.values()) == loop.clock.elapsed == 98


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often the loop has fetched, and how often anything has."""
    counts = {"fetch": 0, "device_get": 0}
    fetch, device_get = rollout.fetch, jax.device_get

    def count_fetch(tree: Any) -> Any:
        counts["fetch"] += 1
        return fetch(tree)

    def count_device_get(tree: Any) -> Any:
        counts["device_get"] += 1
        return device_get(tree)

    monkeypatch.setattr(rollout, "fetch", count_fetch)
    monkeypatch.setattr(loop_module, "fetch", count_fetch)
    monkeypatch.setattr(jax, "device_get", count_device_get)
    return counts


@pytest.mark.parametrize("devices", [1, 8])
def test_nothing_moves_between_host_and_device_unasked(
    devices: int, fetched: dict[str, int]
) -> None:
    with open_loop(run={"devices": devices}) as loop:
        loop.iterate()
        fetched.update(fetch=0, device_get=0)
        with jax.transfer_guard("disallow"):
            assert loop.iterate() is not None
            # Metrics of the iteration before, responses, and the number of decode steps.
            assert fetched == {"fetch": 2, "device_get": 2}
            loop.validate()
            loop.iterate()
            loop.drain()
        assert fetched == {"fetch": 3 * 2, "device_get": 3 * 2}


def test_rate_zero_moves_no_weight() -> None:
    with open_loop(peak=0.0) as loop:
        before = jax.device_get(loop.state.weights)
        loop.iterate()
        record = loop.drain()
        after = jax.device_get(loop.state.weights)
    assert record is not None
    assert (record.learning_rate, record.update_norm) == (0.0, 0.0)
    assert record.grad_norm > 0
    jax.tree.map(np.testing.assert_array_equal, before, after)


def test_the_first_update_moves_the_weights_by_the_recorded_rate() -> None:
    with open_loop(peak=0.02) as loop:
        before = jax.device_get(loop.state.weights)
        loop.iterate()
        record = loop.drain()
        after = jax.device_get(loop.state.weights)
    assert record is not None and record.learning_rate == 0.02
    # Adam's first step is gradient / |gradient|: every weight with a gradient moves by the rate.
    moved = jax.tree.map(lambda a, b: np.abs(a - b), before, after)
    assert max(float(m.max()) for m in jax.tree.leaves(moved)) == pytest.approx(0.02, rel=1e-3)
    norm = np.sqrt(sum(float(np.sum(m.astype(np.float64) ** 2)) for m in jax.tree.leaves(moved)))
    assert record.update_norm == pytest.approx(norm, rel=1e-4)


def test_prompts_are_those_of_their_groups_wherever_the_loop_starts() -> None:
    with open_loop() as loop:
        source = loop.setup.training(0)
        seen = []
        for _ in range(3):
            seen += loop._next.problems
            loop.iterate()
        assert seen == source[:6]  # two prompts an iteration
        later = Loop(
            loop.setup,
            loop.programs,
            state=loop.state,
            reference=None,
            schedule=Schedule(0.1, 1),
            position=Position(iteration=2, samples=32, update=2),
            clock=PhaseClock(),
            scorer=DirectScorer(loop.setup.reward),
            channel=loop.channel,
        )
        assert later._next.problems == source[4:6]
        assert jax.device_get(later._next.waves[0].groups).tolist() == [4] * 8 + [5] * 8
        later.close()
    assert not {problem.content for problem in seen} & loop.setup.held_out


def test_rewards_are_of_the_prompt_that_the_row_answers() -> None:
    setup = prepare_run(
        Config(batch=BatchConfig(size=8, group=2, wave=4), run=RunConfig(devices=1))
    )
    problems = [Problem(prompt=f"{n}+1=", content=f"{n}", answer=n + 1) for n in range(1, 5)]
    said = ["2", "7", "3", "7", "7", "4", "5", "5"]
    waves = [
        Rollouts(
            tokens=jnp.array([[0, 0, *setup.tokenizer.encode(text), 2] for text in texts]),
            starts=jnp.zeros(4, jnp.int32),
            lengths=jnp.full(4, 2, jnp.int32),
            ended=jnp.ones(4, bool),
            log_probs=jnp.zeros((4, 2)),
        )
        for texts in (said[:4], said[4:])
    ]
    steps = [np.int32(2), np.int32(1)]
    fetched = list(fetch_waves(waves, steps, problems, plan=setup.plan, max_prompt_length=2))
    scorer = DirectScorer(setup.reward)
    read = [read_responses(setup.tokenizer, responses) for responses, _ in fetched]
    assert [r.text for part in read for r in part] == said
    assert {(r.tokens, r.ended, r.limit) for part in read for r in part} == {(2, True, 2)}
    parts = [scorer.submit(own, r).result() for (_, own), r in zip(fetched, read, strict=True)]
    joined = join_scores(parts)
    assert joined.rewards.tolist() == [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    assert join_responses([r for r, _ in fetched], wave=4).decode_steps == 3


def test_steady_counts_whole_iterations_and_their_tokens() -> None:
    with open_loop() as loop:
        records = [loop.iterate() for _ in range(4)] + [loop.drain()]
    # The first iteration is let go by; three are the least.
    expected = sum(record.tokens for record in records[2:] if record is not None)
    with open_loop() as loop:
        steady = measure_steady(loop, 0.0)
        assert loop.position.iteration == 4
    assert (steady.iterations, steady.rollouts, steady.tokens) == (3, 48, expected)
    with open_loop() as loop:
        longer = measure_steady(loop, 0.2)
    assert longer.seconds >= 0.2
    assert longer.rollouts == 16 * longer.iterations
    assert longer.iterations > 3
