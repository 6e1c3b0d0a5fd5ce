"""One small experiment that the trainer's tests share, with a reward that rises at once.

Programs are compiled per shape in one process, so tests that keep to the shapes here pay once.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_rl.config import (
    BatchConfig,
    BudgetConfig,
    CheckpointConfig,
    Config,
    ModelConfig,
    OptimizerConfig,
    RunConfig,
    StudyConfig,
    TaskConfig,
    ValidationConfig,
    WarmStartConfig,
)
from jax_rl.config_file import config_to_dict
from jax_rl.hosts.channel import Channel, open_channel
from jax_rl.learner.update import init_state
from jax_rl.records import FILE_NAME, RunRecord
from jax_rl.rewards.base import Problem, Response
from jax_rl.trainer.clock import PhaseClock
from jax_rl.trainer.loop import Loop
from jax_rl.trainer.position import Position, Schedule
from jax_rl.trainer.programs import Compiler, compile_programs
from jax_rl.trainer.run import train
from jax_rl.trainer.scoring import DirectScorer
from jax_rl.trainer.setup import prepare_run
from jax_rl.trainer.warm_start import make_warm_start

MEASURED = {
    "time",
    "seconds",
    "elapsed_seconds",
    "training_seconds",
    "phases",
    "hidden",
    "load_average",
    "peak_memory_bytes",
    "goodput",
    "host",
}
"""Fields of events that two equal runs need not share."""

CONFIG = Config(
    task=TaskConfig(name="trainer_runs:Sevens", max_prompt_length=4, max_response_length=4),
    # Eight heads of both kinds, so that every layout splits it over eight devices.
    model=ModelConfig(layers=1, embed=32, heads=8, kv_heads=8, head_dim=4, mlp=32, vocab=32),
    warm_start=WarmStartConfig(updates=0),
    batch=BatchConfig(size=16, group=8),
    optimizer=OptimizerConfig(learning_rate=0.1, warmup_samples=80),
    validation=ValidationConfig(prompts=16, every_samples=32),
    budget=BudgetConfig(target=1.0, samples=96, seconds=600),
    checkpoint=CheckpointConfig(at_end=False),
    study=StudyConfig(factor=2, smaller=1, larger=0, seeds=2, steady_seconds=0.01),
    run=RunConfig(devices=1),
)

VARIED: dict[str, Any] = {
    "batch": {"size": 32, "wave": 16, "updates": 2, "microbatch": 8},
    "objective": {"kl_coefficient": 0.05},
    "budget": {"samples": 64},
}
"""Everything that adds a program or cuts a batch."""


def count_sevens(problem: Problem, response: Response) -> float:
    return 0.2 * response.text.count("7")


def fail_sometimes(problem: Problem, response: Response) -> float:
    if response.text and response.text[0] in "01234":
        raise RuntimeError(f"no verdict on {response.text}")
    return count_sevens(problem, response)


def fail_always(problem: Problem, response: Response) -> float:
    return float("nan")


class Sevens:
    """A two-digit prompt asks for sevens: 0.2 each, and four fit into a response."""

    name = "sevens"
    prompt_space = 100
    quick_reward = True
    reward = staticmethod(count_sevens)

    def __init__(self, config: TaskConfig):
        pass

    def draw(self, rng: np.random.Generator) -> Problem:
        prompt = f"{rng.integers(100):02d}="
        return Problem(prompt=prompt, content=prompt)

    def solve(self, problem: Problem, rng: np.random.Generator) -> str:
        return "7"


class SometimesBroken(Sevens):
    """The reward of a response that begins with a digit below 5 raises."""

    reward = staticmethod(fail_sometimes)


def need_a_seven(problem: Problem, response: Response) -> float:
    if "7" not in response.text:
        raise RuntimeError("no seven")
    return 1.0


class Demanding(Sevens):
    """The reward raises on every wrong answer, and is 1 for the others."""

    reward = staticmethod(need_a_seven)


class Broken(Sevens):
    """The reward is never a number."""

    reward = staticmethod(fail_always)


def change(config: Config, **tables: dict[str, Any]) -> Config:
    """The configuration with some values of some tables changed."""
    return dataclasses.replace(
        config,
        **{
            name: dataclasses.replace(getattr(config, name), **values)
            for name, values in tables.items()
        },
    )


def run(directory: Path, *, resume: bool = False, **tables: dict[str, Any]) -> RunRecord:
    """Trains the experiment with some values changed, silently."""
    return train(change(CONFIG, **tables), directory, resume=resume, progress=False)


def alone() -> Channel:
    """The channel of a program that is one process."""
    with open_channel() as channel:
        return channel


@contextlib.contextmanager
def open_loop(peak: float = 0.1, **tables: dict[str, Any]) -> Iterator[Loop]:
    """The experiment's loop before its first iteration, without a warm-up of the rate."""
    setup = prepare_run(change(CONFIG, **tables))
    with jax.set_mesh(setup.mesh), open_channel() as channel:
        weights, _ = make_warm_start(setup)
        loop = Loop(
            setup,
            compile_programs(setup, Compiler(lambda event: None)),
            state=init_state(weights, setup.config.optimizer, setup.config.model),
            reference=None,
            schedule=Schedule(peak, 1),
            position=Position(),
            clock=PhaseClock(),
            scorer=DirectScorer(setup.reward),
            channel=channel,
        )
        with contextlib.closing(loop):
            yield loop


def write_toml(path: Path, **tables: dict[str, Any]) -> Path:
    """The experiment as a configuration file."""
    lines: list[str] = []
    for table, values in config_to_dict(change(CONFIG, **tables)).items():
        lines += [f"[{table}]", *(f"{name} = {_write(v)}" for name, v in values.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def _write(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_write(v)}" for name, v in value.items()) + "}"
    return json.dumps(value)


def read_lines(directory: Path) -> list[dict[str, Any]]:
    """The events of a run as they stand in the file."""
    return [json.loads(line) for line in (directory / FILE_NAME).read_text().splitlines()]


def drop_measured(events: Any) -> list[dict[str, Any]]:
    """Events, as dataclasses or as read, without times and load."""
    plain = [e if isinstance(e, dict) else dataclasses.asdict(e) for e in events]
    return [{name: value for name, value in e.items() if name not in MEASURED} for e in plain]
