"""The data of the page's interactive chart of learning curves; all of it is in summary.json."""

import dataclasses
from typing import Any

from jax_rl.report import text
from jax_rl.report.axes import batch_colors
from jax_rl.report.views import list_batches, name_settings
from jax_rl.study.summary import Cell, StudySummary

DIGITS = 7
"""Significant digits of what is embedded: more than a screen shows."""

POSITIONS = {
    "samples": "curve_samples",
    "training_seconds": "curve_training_seconds",
    "elapsed_seconds": "curve_elapsed_seconds",
    "tokens": "curve_tokens",
    "updates": "curve_updates",
}
"""What a curve can be drawn against, and the field of a cell that holds it."""


def gather_curves(summary: StudySummary) -> dict[str, Any] | None:
    """What the chart draws; None where no run has a curve.

    A position that some run lacks, as in logs of other trainers, is left out for all, so that
    switching the axis never drops a run.
    """
    from matplotlib.colors import to_hex

    cells = [cell for cell in summary.cells if cell.curve_scores]
    results = list_batches(summary)
    colors = batch_colors(dataclasses.replace(summary, batches=results))
    cells = [cell for cell in cells if cell.batch in colors]
    if not cells:
        return None
    known = [key for key in POSITIONS if all(_read_position(cell, key) for cell in cells)]
    counted = "elapsed_seconds" in known and all(cell.device_count > 0 for cell in cells)
    return {
        "target": summary.target,
        "axes": [*known, *(["device_hours"] if counted else [])],
        "setting_word": name_settings(summary),
        "settings": list(dict.fromkeys(cell.setting for cell in cells)),
        "batches": [
            {"batch": r.batch, "label": text.format_batch(r), "color": to_hex(colors[r.batch])}
            for r in results
        ],
        "seeds": sorted({cell.seed for cell in cells}),
        "runs": [_describe_run(cell, known) for cell in cells],
    }


def _describe_run(cell: Cell, known: list[str]) -> dict[str, Any]:
    crossing = cell.crossing
    return {
        "setting": cell.setting,
        "batch": cell.batch,
        "seed": cell.seed,
        "finished": cell.finished,
        "devices": cell.device_count,
        "scores": _shorten(cell.curve_scores),
        "fit": _shorten(cell.curve_fit),
        "crossing": None
        if crossing is None
        else {
            "samples": _shorten([crossing.samples])[0],
            "training_seconds": _shorten([crossing.training_seconds])[0],
            "elapsed_seconds": _shorten([crossing.elapsed_seconds])[0],
            "updates": _shorten([crossing.updates])[0],
        },
        **{key: _shorten(_read_position(cell, key)) for key in known},
    }


def _read_position(cell: Cell, key: str) -> list[float]:
    values: list[float] = getattr(cell, POSITIONS[key])
    return values if len(values) == len(cell.curve_scores) and None not in values else []


def _shorten(values: list[float]) -> list[float | None]:
    """Whole numbers as they are, others to seven significant digits; None where not finite."""
    return [
        v if isinstance(v, int) else float(f"{v:.{DIGITS}g}") if text.is_number(v) else None
        for v in values
    ]
