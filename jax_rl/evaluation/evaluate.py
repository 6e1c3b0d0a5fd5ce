"""Scores a policy on the held-out set."""

import dataclasses
import json
from collections.abc import Hashable
from pathlib import Path

import numpy as np

from jax_rl.config import Config
from jax_rl.config_file import validate
from jax_rl.errors import UserError
from jax_rl.evaluation.respond import Answers, respond
from jax_rl.evaluation.scores import Estimate, estimate_mean, estimate_share, majority, pass_at
from jax_rl.evaluation.source import find_policy
from jax_rl.rewards.answers import find_boxed
from jax_rl.rewards.base import Problem
from jax_rl.rewards.numeric import find_number
from jax_rl.trainer.setup import prepare_run


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scores of a policy on held-out prompts, each with its 95 % interval over prompts."""

    score: Estimate  # mean reward
    accuracy: Estimate  # share of correct responses; mean@k
    pass_at: dict[int, Estimate]  # one of so many responses is correct
    majority: Estimate  # the most frequent answer is correct; majority@k
    prompts: int
    responses_per_prompt: int  # k
    left_out: int  # prompts with a failed reward, which count nowhere
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
      prompts: in the set; validation.prompts if left out, 0 for all rows of task.validation. A
        larger set than the run's own may hold prompts that training has met, which is said.
      samples_per_prompt: responses per prompt; validation.samples_per_prompt if left out.
      temperature: divides the logits, 0 is greedy; validation.temperature if left out.
      correct_from: reward from which a response counts as correct.
      output: file to write a JSON line per prompt to.

    Raises:
      UserError: nothing usable at `source`, or settings that do not fit.
    """
    found = find_policy(source, run=run)
    own = found.config.validation
    changed = dataclasses.replace(
        own,
        prompts=own.prompts if prompts is None else prompts or _count_rows(found.config),
        samples_per_prompt=samples_per_prompt or own.samples_per_prompt,
        temperature=own.temperature if temperature is None else temperature,
    )
    config = dataclasses.replace(found.config, validation=changed)
    validate(config)
    setup = prepare_run(config)
    for note in setup.notes:
        print(note)
    answers = respond(found, setup, setup.validation)
    result = _summarise(answers, setup.validation, correct_from)
    if output is not None:
        _write_rows(output, answers, setup.validation)
    _show(result)
    if found.run is not None and result.prompts > own.prompts and not config.task.validation:
        print(f"only the first {own.prompts} prompts were held out of training")
    return result


def _count_rows(config: Config) -> int:
    from jax_rl.tasks.base import has_rows, load_task

    task = load_task(config.task)
    if not has_rows(task) or not task.held_out:
        raise UserError(
            "prompts = 0 asks for all rows of task.validation, and there is no such file; give a"
            " number of prompts"
        )
    return len({problem.content for problem in task.held_out})


def _summarise(answers: Answers, problems: tuple[Problem, ...], correct_from: float) -> Evaluation:
    scores = answers.scores
    assert scores is not None
    rewards = scores.rewards.reshape(len(problems), -1)  # [n, k]
    whole = scores.valid.reshape(rewards.shape).all(axis=1)
    if not whole.any():
        raise UserError(
            f"a reward failed for every one of {len(problems)} prompts; the first:"
            f" {scores.first_failure}"
        )
    responses = rewards.shape[1]
    correct = rewards[whole] >= correct_from - 1e-6
    said = [
        [_read_answer(r.text) for r in answers.responses[row * responses : (row + 1) * responses]]
        for row in np.flatnonzero(whole)
    ]
    ks = sorted({k for k in (2**i for i in range(20)) if k < responses} | {responses})
    lengths = [response.tokens for response in answers.responses]
    return Evaluation(
        score=estimate_mean(rewards[whole].mean(axis=1, dtype=np.float64)),
        accuracy=estimate_share(correct.mean(axis=1)),
        pass_at={k: estimate_share(pass_at(correct, k)) for k in ks},
        majority=estimate_share(majority(correct, said)),
        prompts=len(problems),
        responses_per_prompt=responses,
        left_out=int(np.sum(~whole)),
        failed_rewards=scores.failures,
        mean_length=float(np.mean(lengths)),
        truncated=float(np.mean([not response.ended for response in answers.responses])),
    )


def _read_answer(text: str) -> Hashable | None:
    """What a response gives as its answer, for the vote: a number, else what is boxed."""
    number = find_number(text)
    if number is not None:
        return number
    boxed = find_boxed(text)
    return "".join(boxed.split()) if boxed else None


def _write_rows(path: Path, answers: Answers, problems: tuple[Problem, ...]) -> None:
    scores = answers.scores
    assert scores is not None
    group = len(answers.responses) // len(problems)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for number, problem in enumerate(problems):
            row = {
                "place": problem.place,
                "prompt": problem.prompt,
                "answer": problem.answer,
                "responses": [
                    {
                        "text": answers.responses[i].text,
                        "tokens": answers.responses[i].tokens,
                        "ended": answers.responses[i].ended,
                        "reward": float(scores.rewards[i]) if scores.valid[i] else None,
                    }
                    for i in range(number * group, (number + 1) * group)
                ],
            }
            file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
    print(f"responses: {path}")


def _show(result: Evaluation) -> None:
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
    print("\n".join(lines))
