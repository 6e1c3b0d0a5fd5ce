"""What a reader must know to trust a study, as terms and plain sentences."""

import math
from collections.abc import Iterable

from jax_rl.report import text
from jax_rl.report.table import describe_setting
from jax_rl.report.views import has_several, list_views, name_settings
from jax_rl.study.summary import StudySummary


def list_facts(summary: StudySummary) -> list[tuple[str, str]]:
    """Terms and sentences for the box of the page, the most important first."""
    return [
        ("Set beforehand", _describe_rules(summary)),
        ("Seeds run and dropped", _describe_seeds(summary)),
        ("Start of every run", _describe_start(summary)),
        ("Validation", _describe_validation(summary)),
        ("Order of the runs", _describe_order(summary)),
        ("Two clocks", CLOCKS),
        ("Crossing, samples, throughput", COUNTS),
        ("Intervals", _describe_intervals(summary)),
        ("Checks of the clock", _describe_checks(summary)),
        ("Where and with what", _describe_place(summary)),
    ]


CLOCKS = (
    "Training time: seconds of generate, reward, learn, sync and other on the critical path."
    " Elapsed time: everything since the start of the run, compiling, validating and saving"
    " included. The verdict is computed under both."
)

LAYOUT_INTERVALS = (
    "Runs of one batch and seed in several layouts ask the same prompts and share their random"
    " numbers, which this variance takes for independent: intervals between layouts at one batch"
    " are rather too wide, those between batches rather too narrow. The ratios of samples between"
    " layouts are therefore taken over pairs of such runs; a layout is said to change the samples"
    " where an interval leaves out 1 that allows for the number of these ratios (Bonferroni)."
)

COUNTS = (
    "A sample is one rollout generated, whether or not it had a part in a gradient; validation"
    " responses and the warm start are not samples. The crossing is where the isotonic fit of"
    " the validation curve meets the target, interpolated alike in samples and in seconds."
    " Throughput is samples up to the crossing per training second, so that for each run time ="
    " samples / throughput exactly; summaries are geometric means, so that the factors multiply."
)


def _describe_rules(summary: StudySummary) -> str:
    return (
        f"Target score {summary.target:g}; at most {summary.sample_budget:,} samples and"
        f" {text.format_duration(summary.seconds_budget)} a run, the same for every batch;"
        f" learning rate {text.format_rate(summary.reference_rate)} at the reference batch"
        f" {summary.reference_batch:,}, moved with the batch by the rule {summary.rate_rule};"
        f" batches a factor {summary.factor} apart; {summary.group} rollouts per prompt. A run"
        " that misses the target stays in every table as censored (> N)."
    )


def _describe_seeds(summary: StudySummary) -> str:
    finished = text.count_finished(summary)
    censored = sum(cell.finished and cell.crossing is None for cell in summary.cells)
    fell = sum(cell.crossing is not None and not cell.crossing.held for cell in summary.cells)
    started = len(summary.cells) - finished
    parts = [
        f"{summary.planned_cells} runs planned, {finished} finished"
        + (f", {started} started and not finished" if started else "")
        + (
            f", {summary.planned_cells - len(summary.cells)} without a record"
            if summary.planned_cells > len(summary.cells)
            else ""
        ),
        f"{censored} censored",
        f"{fell} fell back below the target after crossing it (not held)",
    ]
    seeds = sorted({cell.seed for cell in summary.cells})
    return f"{'; '.join(parts)}. Seeds {', '.join(map(str, seeds))}."


def _describe_start(summary: StudySummary) -> str:
    score = f"Validation score {text.format_score(summary.start_score)} before the first update."
    if summary.checkpoint:
        return f"{score} All runs started from {summary.checkpoint}; reading it is never counted."
    return (
        f"{score} The supervised warm start took {text.format_duration(summary.warm_start_seconds)}"
        " when it was made; it is the same for all runs and its time is never counted."
    )


def _describe_validation(summary: StudySummary) -> str:
    return (
        f"{summary.validation_prompts:,} held-out prompts that never occur in training, scored"
        f" every {summary.validation_every:,} samples, at the same sample counts for every"
        f" batch. Scores scatter about the isotonic fit with a standard deviation of"
        f" {text.format_spread(summary.validation_noise)}."
    )


def _describe_order(summary: StudySummary) -> str:
    if has_several(summary):
        arms = ", ".join(f"{cell.setting} {cell.batch:,}" for cell in summary.cells)
        return (
            "Runs go one at a time in blocks of one seed, the settings and batches of a block"
            " together in random order, so that a drift of the machine favours none of them. As"
            f" run: {arms}."
        )
    batches = ", ".join(f"{cell.batch:,}" for cell in summary.cells)
    return (
        "Runs go one at a time in blocks of one seed, the batches of a block in random order, so"
        f" that a drift of the machine does not favour a batch. Batches as run: {batches}."
    )


def _describe_intervals(summary: StudySummary) -> str:
    names = {
        "samples": "samples",
        "throughput": "throughput",
        "training_time": "training time",
        "elapsed_time": "elapsed time",
    }
    spread = ", ".join(
        f"{names.get(key, key)} {text.format_spread(value)}"
        for key, value in summary.residual_sd.items()
    )
    several = has_several(summary)
    pooled = f"{name_settings(summary)}s and batches" if several else "batches"
    words = (
        f"95 % t intervals on logarithms of ratios; residual variance pooled over the {pooled}"
        f" after removing seed effects, {summary.degrees_of_freedom} degrees of freedom."
        f" Residual standard deviation of the logarithm: {spread or text.NOTHING}."
    )
    return f"{words} {LAYOUT_INTERVALS}" if several else words


def _describe_checks(summary: StudySummary) -> str:
    def largest(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None and math.isfinite(value)]
        return max(map(abs, known), default=None)

    cells = [cell for cell in summary.cells if cell.finished]
    steady = text.format_percent(largest(cell.steady_gap for cell in cells))
    total = text.format_percent(largest(cell.accounting_gap for cell in cells))
    other = text.format_percent(largest(cell.other_share for cell in cells))
    load = text.format_number(largest(cell.load_average for cell in cells))
    mismatch = text.format_spread(largest(cell.mismatch_max for cell in cells))
    return (
        f"Largest over the finished runs: separate throughput measurement off by {steady}, sum of"
        f" phases against elapsed time off by {total}, share of time in other {other}, load"
        f" average {load}. Largest difference between the learner's and the sampler's"
        f" log-probability of the same token: {mismatch} nats."
    )


def _describe_place(summary: StudySummary) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in summary.versions.items())
    settings = ", ".join(map(describe_setting, list_views(summary)))
    named = (
        f"{name_settings(summary)}s {settings}"
        if has_several(summary)
        else f"layout {summary.setting}"
    )
    return (
        f"{summary.device}; {named}; {versions}; git revision {summary.git_revision or 'unknown'}."
    )
