"""A study of several settings as one study per setting, which is shown as a study of one is."""

import dataclasses
import re

from jax_rl.study import names
from jax_rl.study.clocks import agree
from jax_rl.study.summary import Arm, BatchResult, StudySummary


def has_several(summary: StudySummary) -> bool:
    """Whether a batch alone does not say which runs are meant."""
    return len(summary.settings) > 1


def name_settings(summary: StudySummary) -> str:
    """What the settings are called: `layout` where they differ in nothing else."""
    return names.name_settings((one.setting, one.layout) for one in summary.settings)


def describe_rule(summary: StudySummary) -> str:
    """What moves the rate with the batch: `the rules none and sqrt`."""
    found = [one.rule for one in summary.answers.settings.values()] if summary.answers else []
    rules: list[str] = list(dict.fromkeys(found)) or [summary.rate_rule]
    words = f"the rule{'' if len(rules) == 1 else 's'} {names.join_words(rules)}"
    tuned = summary.answers is not None and bool(summary.answers.tuning.arms)
    return f"{words}, times the best multiple of trials" if tuned else words


def list_views(summary: StudySummary) -> list[StudySummary]:
    """The study of each setting, with its own verdicts, in the order of the configuration.

    Of a study of one setting the only view is itself.
    """
    if not has_several(summary):
        return [summary]
    return [
        dataclasses.replace(
            summary,
            setting=setting.setting,
            device=setting.device,
            batches=[r for r in summary.batches if r.setting == setting.setting],
            cells=[c for c in summary.cells if c.setting == setting.setting],
            planned_cells=summary.planned_cells // len(summary.settings),
            training=setting.training,
            elapsed=setting.elapsed,
            clocks_agree=agree(setting.training, setting.elapsed),
            settings=[setting],
            single_choices=[],
            layout_ratios=[],
            layout_samples=[],
            notes=[],
        )
        for setting in summary.settings
    ]


def name_files(summary: StudySummary) -> dict[str, str]:
    """What stands for each setting in the names of files and the ids of a page."""
    return {
        setting.setting: setting.setting
        if re.fullmatch(r"[\w-]+", setting.setting, flags=re.ASCII)
        else f"setting{place}"
        for place, setting in enumerate(summary.settings, 1)
    }


def list_batches(summary: StudySummary) -> list[BatchResult]:
    """One result for each batch, ascending, whatever its setting."""
    by_batch = {result.batch: result for result in summary.batches}
    return [by_batch[batch] for batch in sorted(by_batch)]


def find_result(summary: StudySummary, arm: Arm) -> BatchResult | None:
    """The result of an arm; None if no run of it is finished."""
    found = [r for r in summary.batches if (r.setting, r.batch) == (arm.setting, arm.batch)]
    return found[0] if found else None
