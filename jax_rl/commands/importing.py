"""The command that makes a study out of other trainers' logs."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, UseAppendAction, arg


@dataclasses.dataclass(frozen=True)
class ImportLog:
    """Make a study out of the logs of another trainer, for the same report.

    The same as `jax_rl.imports.study.import_study(runs, directory, target=...)`, and then
    `jax-rl report DIR`. One log is one run: `jax-rl import-log study --target 0.6 --run a.csv
    batch=64 seed=0 --run b.csv batch=256 seed=0`. What a log does not tell stays unknown, and the
    report says so.
    """

    directory: Annotated[Positional[Path], arg(metavar="DIR")]
    """Directory of the study to make."""
    target: float
    """Validation score to reach."""
    logs: Annotated[UseAppendAction[tuple[tuple[str, ...], ...]], arg(name="run")] = ()
    """FILE batch=64 seed=0 [rate= setting= group= updates= devices= device= run= format=]."""
    runs: Path | None = None
    """TOML file with a table [[run]] for each log, with the same keys, file and map."""
    format: Literal["auto", "csv", "jsonl", "tensorboard", "wandb", "verl", "trl", "tunix"] = "auto"
    """Whose names of columns to look for."""
    columns: Annotated[tuple[str, ...], arg(name="map")] = ()
    """ROLE=COLUMN ..., e.g. samples=episodes score=val/acc seconds=time; COLUMN - is none."""
    reference: int = 0
    """Batch that the others are compared with; 0: the smallest."""
    task: str = ""
    """What was trained on, for the report."""
    model: str = ""
    """What was trained, for the report."""
    parameters: int = 0
    """Of the model; 0: not known."""
    prompts: int = 0
    """Prompts of the validation set; 0: not known."""

    def run(self) -> None:
        from jax_rl.imports.runs import load_runs, parse_map, parse_run
        from jax_rl.imports.study import import_study

        listed = [] if self.runs is None else load_runs(self.runs)
        directory = import_study(
            [*listed, *map(parse_run, self.logs)],
            self.directory,
            target=self.target,
            reference=self.reference,
            columns=parse_map(self.columns),
            format=self.format,
            task=self.task,
            model=self.model,
            parameters=self.parameters,
            prompts=self.prompts,
        )
        print(f"made the study {directory}; now: jax-rl report {directory}")

    def explain_interrupt(self) -> str:
        return f"{self.directory} may be incomplete; remove it and start again"
