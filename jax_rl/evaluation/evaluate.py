"""Scores a policy on the held-out set."""

import dataclasses
from pathlib import Path

import numpy as np

from jax_rl.config import Config, TaskConfig
from jax_rl.config_checks import validate
from jax_rl.errors import UserError
from jax_rl.evaluation.output import prepare_output, write_output
from jax_rl.evaluation.respond import Answers, respond
from jax_rl.evaluation.scores import Estimate, estimate_mean, estimate_share, majority, pass_at
from jax_rl.evaluation.source import find_policy
from jax_rl.evaluation.votes import read_vote
from jax_rl.rewards.base import Problem
from jax_rl.tasks.base import has_rows
from jax_rl.trainer.setup import load_fitting_task, prepare_policy, prepare_run

_ROUNDING = 1e-6  # a reward is float32: 0.1 + 0.9 may be just below 1


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scores of a policy on held-out prompts, each with its 95 % interval over prompts."""

    score: Estimate  # mean reward
    accuracy: Estimate  # share of correct responses; mean@k
    pass_at: dict[int, Estimate]  # one of so many responses is correct
    majority: Estimate  # the most frequent answer is correct; majority@k
    prompts: int
    responses_per_prompt: int  # k
    left_out: int  # prompts with a failed reward, which have no part in the scores
    failed_rewards: int
    mean_length: float  # tokens
    truncated: float  # share of responses without an end token


def evaluate(
    source: str | Path | Config,
    *,
    run: Path | None = None,
    prompts: int | None = None,
    samples_per_prompt: int | None = None,
    temperature: float | None = None,
    correct_from: float = 1.0,
    output: Path | None = None,
) -> Evaluation:
    """Scores a policy on the held-out set, prints the result and returns it.

    Args:
      source: directory of a run (its newest checkpoint), or a configuration as a file, a name or
        a value (the weights that it starts from, those of model.checkpoint for example).
      run: directory of the run that has the weights, where `source` is a configuration.
      prompts: in the set; validation.prompts if left out, 0 for all rows of task.validation. It
        is said if training may have met some of them.
      samples_per_prompt: responses per prompt; validation.samples_per_prompt if left out.
      temperature: divides the logits, 0 is greedy; validation.temperature if left out.
      correct_from: reward from which a response counts as correct.
      output: file to write a JSON line per prompt to, as `jax_rl.evaluation.output` has it.

    Raises:
      UserError: nothing usable at `source`, settings that do not fit, a file that cannot be
        written, or no prompt without a failed reward.
    """
    found = find_policy(source, run=run)
    own = found.config.validation
    changed = dataclasses.replace(
        own,
        prompts=own.prompts if prompts is None else prompts or _count_rows(found.config),
        samples_per_prompt=(
            own.samples_per_prompt if samples_per_prompt is None else samples_per_prompt
        ),
        temperature=own.temperature if temperature is None else temperature,
    )
    config = dataclasses.replace(found.config, validation=changed)
    validate(config)
    setup = prepare_run(config)
    for note in setup.notes:
        print(note)
    if output is not None:
        prepare_output(output)
    answers = respond(found, setup)
    correct = answers.scores.rewards >= correct_from - _ROUNDING
    if output is not None:
        write_output(output, answers, correct, setup.validation)
        print(f"responses: {output}")
    result = _summarise(answers, correct, setup.validation)
    print(_describe(result))
    if result.failed_rewards:
        print(f"the first failed reward, {answers.scores.first_failure}")
    if found.run is not None:
        print(_compare_sets(find_policy(found.run).config, config), end="")
    return result


def _count_rows(config: Config) -> int:
    """Prompts in task.validation that can be asked."""
    task = load_fitting_task(prepare_policy(config))
    if not has_rows(task) or not task.held_out:
        raise UserError(
            "prompts = 0 asks for all rows of task.validation, and there is no such file; give a"
            " number of prompts"
        )
    return len({problem.content for problem in task.held_out})


def _summarise(answers: Answers, correct: np.ndarray, problems: tuple[Problem, ...]) -> Evaluation:
    shape = (len(problems), -1)
    rewards, correct = answers.scores.rewards.reshape(shape), correct.reshape(shape)  # [n, k]
    whole = answers.scores.valid.reshape(shape).all(axis=1)
    if not whole.any():
        raise UserError(
            f"each of {len(problems)} prompts has a failed reward, so nothing can be said; the"
            f" first, {answers.scores.first_failure}"
        )
    k = rewards.shape[1]
    votes = [
        [read_vote(problems[row], one.text) for one in answers.responses[row * k : (row + 1) * k]]
        for row in np.flatnonzero(whole)
    ]
    correct = correct[whole]
    return Evaluation(
        score=estimate_mean(rewards[whole].mean(axis=1, dtype=np.float64)),
        accuracy=estimate_share(correct.mean(axis=1)),
        pass_at={n: estimate_share(pass_at(correct, n)) for n in _list_powers(k)},
        majority=estimate_share(majority(correct, votes)),
        prompts=len(problems),
        responses_per_prompt=k,
        left_out=int(np.sum(~whole)),
        failed_rewards=answers.scores.failures,
        mean_length=float(np.mean([one.tokens for one in answers.responses])),
        truncated=float(np.mean([not one.ended for one in answers.responses])),
    )


def _list_powers(k: int) -> list[int]:
    """1, 2, 4 and so on below k, and k."""
    return [2**i for i in range((k - 1).bit_length())] + [k]


def _describe(result: Evaluation) -> str:
    k = result.responses_per_prompt
    lines = [f"score        {result.score}  mean reward", f"accuracy     {result.accuracy}"]
    if k > 1:
        lines[-1] += f"  mean@{k}"
        lines += [f"pass@{n:<8}{estimate}" for n, estimate in result.pass_at.items()]
        lines.append(f"majority@{k:<4}{result.majority}")
    lines.append(
        f"{result.prompts:,} prompts x {k}, mean length {result.mean_length:.1f} tokens,"
        f" {result.truncated:.1%} truncated, {result.failed_rewards} failed rewards; in brackets"
        " the 95 % interval over prompts"
    )
    if result.left_out:
        lines.append(f"{result.left_out} prompts with a failed reward are left out")
    return "\n".join(lines)


def _compare_sets(trained: Config, config: Config) -> str:
    """A line on prompts that the run may have met in training, or nothing.

    Args:
      trained: what the run was trained with.
      config: what it was evaluated with.
    """
    if _forget_lengths(trained.task) != _forget_lengths(config.task) or (
        not config.task.validation and trained.validation.seed != config.validation.seed
    ):
        return "this is not the set that was held out of training, which may have met some of it\n"
    if not config.task.validation and config.validation.prompts > trained.validation.prompts:
        return f"only the first {trained.validation.prompts} prompts were held out of training\n"
    return ""


def _forget_lengths(task: TaskConfig) -> TaskConfig:
    """What tells which problems there are."""
    return dataclasses.replace(task, max_prompt_length=0, max_response_length=0)
