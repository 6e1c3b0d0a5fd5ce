"""A study of several layouts as one study per layout, which is shown as a study of one is."""

import dataclasses
import re

from jax_rl.study.analyse import agree
from jax_rl.study.summary import Arm, BatchResult, StudySummary


def has_several(summary: StudySummary) -> bool:
    """Whether a batch alone does not say which runs are meant."""
    return len(summary.layouts) > 1


def list_views(summary: StudySummary) -> list[StudySummary]:
    """The study of each layout, with its own verdicts, in the order of the configuration.

    Of a study of one layout the only view is itself.
    """
    if not has_several(summary):
        return [summary]
    return [
        dataclasses.replace(
            summary,
            layout=layout.layout,
            device=layout.device,
            batches=[r for r in summary.batches if r.layout == layout.layout],
            cells=[c for c in summary.cells if c.layout == layout.layout],
            planned_cells=summary.planned_cells // len(summary.layouts),
            training=layout.training,
            elapsed=layout.elapsed,
            clocks_agree=agree(layout.training, layout.elapsed),
            layouts=[layout],
            single_choices=[],
            layout_ratios=[],
            layout_samples=[],
            notes=[],
        )
        for layout in summary.layouts
    ]


def name_files(summary: StudySummary) -> dict[str, str]:
    """What stands for each layout in the names of files and the ids of a page."""
    return {
        layout.layout: layout.layout
        if re.fullmatch(r"[\w-]+", layout.layout, flags=re.ASCII)
        else f"layout{place}"
        for place, layout in enumerate(summary.layouts, 1)
    }


def list_batches(summary: StudySummary) -> list[BatchResult]:
    """One result for each batch, ascending, whatever its layout."""
    by_batch = {result.batch: result for result in summary.batches}
    return [by_batch[batch] for batch in sorted(by_batch)]


def find_result(summary: StudySummary, arm: Arm) -> BatchResult | None:
    """The result of an arm; None if no run of it is finished."""
    found = [r for r in summary.batches if (r.layout, r.batch) == (arm.layout, arm.batch)]
    return found[0] if found else None


def list_devices(summary: StudySummary) -> list[str]:
    """What the runs were on; seconds on different devices are not compared."""
    return sorted({cell.device for cell in summary.cells})
