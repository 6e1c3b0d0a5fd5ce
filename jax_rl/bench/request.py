"""What is asked to be measured: layouts x batches, each with its configuration."""

import dataclasses
import math
from collections.abc import Sequence

from jax_rl.config import Config, resize_batch, study_batches
from jax_rl.config_checks import validate
from jax_rl.errors import UserError
from jax_rl.resources import find_layout


@dataclasses.dataclass(frozen=True)
class Request:
    """One point that is asked for."""

    layout: str  # its name
    batch: int  # rollouts per iteration
    config: Config

    @property
    def label(self) -> str:
        """The point in words."""
        return f"{self.layout} batch {self.batch}"


def list_requests(
    config: Config, batches: Sequence[int], layouts: Sequence[str]
) -> tuple[Request, ...]:
    """Every layout with every batch, ascending in each layout: memory then shows its growth.

    Args:
      config: the experiment.
      batches: rollouts per iteration; those of the study if empty.
      layouts: names or paths; run.layout if empty.

    Raises:
      UserError: a batch that is named twice or that no mesh could map, or an unknown layout.
    """
    batches = tuple(batches) or study_batches(config)
    _check_batches(batches)
    by_name: dict[str, str] = {}
    for layout in layouts or (config.run.layout,):
        name = find_layout(layout).stem
        if name in by_name:
            raise UserError(
                f"layouts: {name!r} is named twice, as {by_name[name]!r} and {layout!r}"
            )
        by_name[name] = layout
    return tuple(
        Request(name, batch, _change(config, batch, layout))
        for name, layout in by_name.items()
        for batch in sorted(batches)
    )


def check_seconds(seconds: float) -> None:
    """Refuses a length of measurement that is none.

    Raises:
      UserError: not a finite number above 0.
    """
    if not (math.isfinite(seconds) and seconds > 0):
        raise UserError(f"seconds = {seconds} must be a finite number above 0: a minute is 60")


def parse_batches(text: str) -> tuple[int, ...]:
    """Batch sizes written with commas between them.

    Raises:
      UserError: something else stands there.
    """
    words = [word.strip() for word in text.split(",")]
    wrong = [word for word in words if not word.isdecimal()]
    if wrong:
        raise UserError(
            f"--batches {text}: {wrong[0]!r} is not a whole number; right: batch sizes with commas"
            " between them, as in 8,32,128"
        )
    return tuple(int(word) for word in words)


def _check_batches(batches: Sequence[int]) -> None:
    for batch in batches:
        if batch < 1:
            raise UserError(f"batches: {batch} must be at least 1")
        if list(batches).count(batch) > 1:
            raise UserError(f"batches: {batch} is named twice")


def _change(config: Config, batch: int, layout: str) -> Config:
    """The configuration of a point; the grid and the budget of a training run play no part."""
    changed = dataclasses.replace(
        config,
        batch=resize_batch(config.batch, batch),
        validation=dataclasses.replace(config.validation, every_samples=batch),
        budget=dataclasses.replace(config.budget, samples=batch),
        run=dataclasses.replace(config.run, layout=layout),
    )
    validate(changed)
    return changed
