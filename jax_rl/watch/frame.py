"""One frame of the live view: a study or a run as it stands, for a terminal or a pipe."""

from typing import TYPE_CHECKING

from jax_rl.report.text import clean, format_duration, format_number, format_score
from jax_rl.watch.progress import Progress
from jax_rl.watch.state import Run, Snapshot

if TYPE_CHECKING:
    from rich.console import RenderableType

SHOWN_VALIDATIONS = 5
BAR_WIDTH = 24
QUIET_SECONDS = 120.0
"""A record that has not grown for so long is said to be silent: the run may have stopped."""


def render_frame(snapshot: Snapshot) -> "RenderableType":
    """The whole view; fits 80 columns for studies of up to about six seeds."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(_describe_study(snapshot), style="bold")]
    if snapshot.trials:
        parts.append(Text(_describe_trials(snapshot)))
    single = len(snapshot.runs) == 1
    for run in (*snapshot.trials, *snapshot.runs):
        if run.state == "started" or single:
            parts += [Text(""), *_render_run(run)]
    if not single:
        parts += [Text(""), _render_grid(snapshot)]
    return Group(*parts)


def _describe_study(snapshot: Snapshot) -> str:
    if len(snapshot.runs) == 1:
        return clean(snapshot.name)
    words = f"{clean(snapshot.name)}: {snapshot.count('finished')} of {len(snapshot.runs)} runs"
    words += f" finished, {snapshot.count('started')} started, {snapshot.count('waiting')} waiting"
    left = snapshot.estimate_seconds_left()
    if left and not snapshot.finished:
        words += f"; about {format_duration(left)} more if they go like the finished ones"
    return words


def _describe_trials(snapshot: Snapshot) -> str:
    done = sum(run.state == "finished" for run in snapshot.trials)
    return f"trials of the rate: {done} of {len(snapshot.trials)} begun are finished"


def _render_run(run: Run) -> "list[RenderableType]":
    from rich.text import Text

    parts: list[RenderableType] = [Text(_name_run(run), style="bold cyan")]
    if run.progress is None:
        return [*parts, Text("  waiting")]
    progress = run.progress
    last = progress.validations[-1].score if progress.validations else None
    used = progress.samples / progress.budget_samples
    lines = [
        f"score    {_draw_bar((last or 0.0) / progress.target)} {format_score(last)}"
        f" of {format_score(progress.target)}, reward {format_score(progress.reward)}",
        f"samples  {_draw_bar(used)} {progress.samples:,} of {progress.budget_samples:,},"
        f" {progress.updates:,} updates",
        _describe_time(progress),
    ]
    if progress.validations:
        shown = progress.validations[-SHOWN_VALIDATIONS:]
        lines.append(
            "validations  " + "  ".join(f"{v.samples:,}: {format_score(v.score)}" for v in shown)
        )
    if not progress.reason and run.silent_seconds > QUIET_SECONDS:
        lines.append(
            f"silent for {format_duration(run.silent_seconds)}: compiling, validating, or stopped"
        )
    return [*parts, *(Text(f"  {line}") for line in lines)]


def _name_run(run: Run) -> str:
    if run.planned is None:
        return clean(run.name)
    setting = f"{run.planned.setting}, " if run.planned.setting else ""
    return f"{clean(setting)} batch {run.planned.batch:,}, seed {run.planned.seed}".strip()


def _describe_time(progress: Progress) -> str:
    words = f"{format_number(progress.rollouts_per_second)} rollouts/s, elapsed "
    words += format_duration(progress.elapsed_seconds)
    if progress.reason:
        return f"{words}, ended: {clean(progress.reason)}"
    left = progress.seconds_left
    if left is None:
        return f"{words}, not known yet how long"
    return f"{words}, at most {format_duration(left)} more by its budget"


def _draw_bar(share: float) -> str:
    filled = round(BAR_WIDTH * min(1.0, max(0.0, share)))
    return "█" * filled + "·" * (BAR_WIDTH - filled)


def _render_grid(snapshot: Snapshot) -> "RenderableType":
    """A row for each setting and batch, a column for each seed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    planned = {
        (run.planned.setting, run.planned.batch, run.planned.seed): run
        for run in snapshot.runs
        if run.planned is not None
    }
    seeds = sorted({seed for _, _, seed in planned})
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("batch", *(f"seed {seed}" for seed in seeds)):
        table.add_column(Text(column), justify="right")
    settings = list(dict.fromkeys(setting for setting, _, _ in planned))
    for setting in settings:
        for batch in sorted({b for s, b, _ in planned if s == setting}):
            runs = [planned.get((setting, batch, seed)) for seed in seeds]
            name = f"{clean(setting)} {batch:,}".strip()
            table.add_row(Text(name), *(Text(_describe_cell(run)) for run in runs))
    return table


def _describe_cell(run: Run | None) -> str:
    if run is None:
        return ""
    if run.progress is None:
        return "waiting"
    if run.progress.reason:
        return f"{clean(run.progress.reason)} {run.progress.samples:,}"
    return f"{100 * run.progress.samples / run.progress.budget_samples:.0f} % of budget"
