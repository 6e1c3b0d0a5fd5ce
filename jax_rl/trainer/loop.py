"""The loop over compiled programs: sample, reward, learn, validate.

The devices never wait for the host's bookkeeping: an iteration's sampler is dispatched before
the metrics of the iteration before are fetched, and the next prompts are built while the update
runs. The moments at which results become ready are the borders between the phases.
"""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from jax_rl.errors import UserError
from jax_rl.hosts.channel import Channel
from jax_rl.learner.metrics import Metrics, fetch_values
from jax_rl.learner.update import TrainState
from jax_rl.mesh.batch_plan import BatchPlan
from jax_rl.model.weights import Weights
from jax_rl.records import Iteration, Validation
from jax_rl.rewards.base import Problem
from jax_rl.sampler.generate import Rollouts
from jax_rl.trainer.clock import Cut, PhaseClock
from jax_rl.trainer.feed import Feed, ForcedLengths, make_key, make_validation_batch
from jax_rl.trainer.lengths import count_lengths
from jax_rl.trainer.position import Position, Schedule
from jax_rl.trainer.programs import Programs
from jax_rl.trainer.rollout import (
    Responses,
    fetch,
    fetch_waves,
    generate,
    is_ready,
    join_responses,
    read_responses,
)
from jax_rl.trainer.scoring import (
    PendingScores,
    ScoredBatch,
    Scorer,
    exchange_scores,
    join_scores,
)
from jax_rl.trainer.setup import RunSetup
from jax_rl.units import count_unit_rows


@dataclasses.dataclass(frozen=True)
class _Pending:
    """An iteration whose update has been dispatched."""

    batch: ScoredBatch
    metrics: Metrics
    rate: float


class FailedRewardsError(UserError):
    """The reward failed on every response of an iteration or a validation."""

    def __init__(self, message: str, finished: Iteration | None):
        super().__init__(message)
        self.finished = finished  # record of the iteration before, if it was not written yet


class Loop:
    """Drives the programs of one run; holds what changes from iteration to iteration."""

    def __init__(
        self,
        setup: RunSetup,
        programs: Programs,
        *,
        state: TrainState,
        reference: Weights | None,
        schedule: Schedule,
        position: Position,
        clock: PhaseClock,
        scorer: Scorer,
        channel: Channel,
        forced_lengths: ForcedLengths | None = None,
    ):
        """Makes keys and the first prompts ready; the mesh is the one in context.

        Args:
          setup: what is fixed.
          programs: compiled for it.
          state: of the learner; donated to the first update.
          reference: weights of the KL term, or None.
          schedule: the learning rate.
          position: where the run stands, its first iteration after it.
          clock: charged with every second.
          scorer: of responses.
          channel: between the processes of the program.
          forced_lengths: how long responses are made; None: until an end token. The programs are
            compiled for the one or for the other.
        """
        self.setup, self.programs = setup, programs
        self.state, self.position, self.clock = state, position, clock
        self._reference, self._schedule, self._scorer = reference, schedule, scorer
        self.channel = channel
        config = setup.config
        self._key = make_key(config.run.seed, validation=False, setup=setup)
        self._validation_key = make_key(config.validation.seed, validation=True, setup=setup)
        self._temperature = setup.put_whole(config.sampler.temperature)
        self._validation_temperature = setup.put_whole(config.validation.temperature or 1.0)
        self._validation_batch = make_validation_batch(setup)
        self._feed = Feed(setup, iteration=position.iteration, forced_lengths=forced_lengths)
        self._next = self._feed.make_batch()
        self._sampler_weights: Weights | None = None
        self._pending: _Pending | None = None
        self.first_failure: str | None = None  # of a reward, in words
        self.program = "state"  # the one that memory is needed for now, for a message

    def iterate(self) -> Iteration | None:
        """Samples, rewards and dispatches the update; the record of the iteration before, if any.

        Raises:
          FailedRewardsError: the reward failed on every response; nothing was learnt from them.
        """
        setup, batch = self.setup, self._next
        weights = self._dispatch_sync()
        if self._pending is None:
            # Nothing else runs: what dispatching takes is part of generating.
            self._enter("generate")
        self.program = "decode"
        rollouts, steps = generate(
            self.programs.sampler, weights, batch.waves, self._key, self._temperature
        )
        finished = self._finish(weights, then="generate")
        # The update changes them, and should find their memory free.
        del weights
        self._sampler_weights = None
        responses, pending = self._submit(
            batch.problems, rollouts, steps, plan=setup.plan, phase="reward"
        )
        # What needs no rewards is dispatched before they are waited for.
        joined = self.programs.join(tuple(rollouts)) if self.programs.join else rollouts[0]
        reference = None
        if self.programs.score is not None:
            reference = self.programs.score(self._reference, joined, self._temperature)
        scored = self._gather(responses, pending, finished)
        self._enter("learn")
        self.program = "update"
        rates = self._schedule.rates(self.position.update, setup.plan.updates)
        self.state, metrics = self.programs.update(
            self.state,
            joined,
            setup.put_whole(scored.scores.rewards),
            setup.put_whole(scored.scores.valid),
            setup.put_whole(np.asarray(rates, np.float32)),
            self._temperature,
            reference,
        )
        self._pending = _Pending(scored, metrics, rates[-1])
        self._advance()
        with self.clock.hide("prompts", busy=lambda: not is_ready(self.state.weights)):
            self._next = self._feed.make_batch()
        return finished

    def drain(self) -> Iteration | None:
        """Waits for the update that was dispatched last; its iteration's record, if any."""
        return self._finish(None, then="other")

    def validate(self) -> tuple[Iteration | None, Validation]:
        """Scores the held-out set with the policy after the last update.

        Raises:
          FailedRewardsError: the reward failed on every response.
        """
        setup = self.setup
        assert self.programs.validation is not None, "compiled without the validation's sampler"
        weights = self._dispatch_sync()
        self.program = "validation_decode"
        rollouts, steps = generate(
            self.programs.validation,
            weights,
            self._validation_batch.waves,
            self._validation_key,
            self._validation_temperature,
        )
        before = self.clock.totals["validate"]
        finished = self._finish(weights, then="validate")
        elapsed, training = self.clock.elapsed, self.clock.training
        responses, pending = self._submit(
            self._validation_batch.problems,
            rollouts,
            steps,
            plan=setup.validation_plan,
            phase="validate",
        )
        scored = self._gather(responses, pending, finished)
        # The set is filled up to whole shards with repeated prompts, which do not count.
        count = len(setup.validation) * setup.validation_plan.group
        valid = scored.scores.valid[:count]
        # A failed reward is 0 here: left out, a verifier that fails on wrong answers would end
        # the run at its target.
        score = float(
            np.mean(np.where(valid, scored.scores.rewards[:count], 0.0), dtype=np.float64)
        )
        self.clock.enter("other")
        return finished, Validation(
            samples=self.position.samples,
            iteration=self.position.iteration,
            update=self.position.update,
            score=score,
            rollouts=count,
            failed_rewards=int(np.sum(~valid)),
            mean_length=float(np.mean(scored.lengths[:count])),
            elapsed_seconds=elapsed,
            training_seconds=training,
            seconds=self.clock.totals["validate"] - before,
        )

    def close(self) -> None:
        """Ends the thread that reads prompts ahead."""
        self._feed.close()

    def _submit(
        self,
        problems: Sequence[Problem],
        rollouts: Sequence[Rollouts],
        steps: Sequence[jax.Array],
        *,
        plan: BatchPlan,
        phase: str,
    ) -> tuple[Responses, list[PendingScores]]:
        """Fetches wave after wave and has it scored while the devices decode the next.

        With the last wave on the host the clock enters `phase`.
        """
        waves: list[Responses] = []
        pending: list[PendingScores] = []
        length = self.setup.config.task.max_prompt_length
        fetched = fetch_waves(rollouts, steps, problems, plan=plan, max_prompt_length=length)
        for number, (responses, own) in enumerate(fetched, 1):
            waves.append(responses)
            if number == len(rollouts):
                self._enter(phase)
            with self.clock.hide("reward", busy=lambda: not is_ready(rollouts[-1])):
                pending.append(
                    self._scorer.submit(own, read_responses(self.setup.tokenizer, responses))
                )
        return join_responses(waves, wave=plan.wave), pending

    def _gather(
        self, responses: Responses, pending: Sequence[PendingScores], finished: Iteration | None
    ) -> ScoredBatch:
        """Waits for the scores of all waves, here and on the other processes."""
        try:
            own = join_scores([part.result() for part in pending])
        except UserError as error:
            if self.channel.count > 1:
                raise  # of this process alone, so that nothing can be saved together
            raise FailedRewardsError(str(error), finished) from error
        try:
            scored = exchange_scores(
                responses, own, channel=self.channel, name=self.setup.task.name
            )
        except UserError as error:
            raise FailedRewardsError(str(error), finished) from error
        self.first_failure = self.first_failure or scored.scores.first_failure
        return scored

    def _enter(self, phase: str) -> None:
        """Charges the clock, and tells the other processes what this one is at."""
        self.clock.enter(phase)
        self.channel.report(f"iteration {self.position.iteration + 1}: {phase}")

    def _dispatch_sync(self) -> Weights:
        if self._sampler_weights is None:
            self.program = "sync"
            self._sampler_weights = self.programs.sync(self.state.weights)
        return self._sampler_weights

    def _finish(self, synced: Weights | None, *, then: str) -> Iteration | None:
        """Waits for the pending update (learn ends), then for the sampler's weights (sync ends).

        What is left to do on the host is done in the phase `then`, behind the device's work.
        """
        pending, self._pending = self._pending, None
        dispatched, self.program = self.program, "update"
        metrics = fetch(pending.metrics) if pending is not None else {}
        self.program = dispatched
        self._enter("sync")
        if pending is not None:
            # Only here: all seconds since the record before belong to this iteration's.
            cut = self.clock.cut()
        if synced is not None:
            jax.block_until_ready(synced["final_norm"])
        self._enter(then)
        if pending is None:
            return None
        return self._describe(pending, fetch_values(metrics), cut)

    def _advance(self) -> None:
        plan, position = self.setup.plan, self.position
        self.position = dataclasses.replace(
            position,
            iteration=position.iteration + 1,
            samples=position.samples + plan.size,
            update=position.update + plan.updates,
        )

    def _describe(self, pending: _Pending, metrics: dict[str, float], cut: Cut) -> Iteration:
        """The record of the iteration whose update has just ended."""
        batch, position = pending.batch, self.position
        plan, measured = self.setup.plan, self.setup.config.measure.noise_scale
        learnt = position.learnt + round(metrics.pop("counted") * plan.size)
        self.position = dataclasses.replace(position, learnt=learnt)
        unit = count_unit_rows(plan.microbatch, plan.group) if measured else 0
        return Iteration(
            iteration=position.iteration,
            samples=position.samples,
            learnt=learnt,
            update=position.update,
            learning_rate=pending.rate,
            elapsed_seconds=cut.elapsed,
            training_seconds=cut.training,
            phases=cut.phases,
            hidden=cut.hidden,
            tokens=int(batch.lengths.sum()),
            decode_steps=batch.decode_steps,
            mean_length=float(batch.lengths.mean()),
            p95_length=float(np.quantile(batch.lengths, 0.95)),
            truncated=float(1.0 - batch.ended.mean()),
            failed_rewards=batch.scores.failures,
            reward_timeouts=batch.scores.timeouts,
            kl=metrics.pop("kl", None),
            length_counts=count_lengths(batch.lengths, self.setup.config.task.max_response_length),
            noise_units=plan.minibatch // unit if unit else 0,
            noise_unit_groups=unit // plan.group,
            **metrics,
        )
