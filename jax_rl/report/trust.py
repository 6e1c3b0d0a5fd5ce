"""What a reader must know to trust a study, as terms and plain sentences."""

import math
from collections.abc import Iterable

from jax_rl.report import text
from jax_rl.report.table import describe_setting
from jax_rl.report.views import describe_rule, has_several, list_views, name_settings
from jax_rl.study.names import join_words
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
    "The ratios of samples between layouts are therefore taken over pairs of such runs; a layout is"
    " said to change the samples where an interval leaves out 1 that allows for the number of these"
    " ratios (Bonferroni)."
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
        f" {summary.reference_batch:,}, moved with the batch by {describe_rule(summary)};"
        f" batches a factor {summary.factor} apart; {_describe_group(summary)}. A run"
        " that misses the target stays in every table as censored (> N)."
    )


def _describe_group(summary: StudySummary) -> str:
    words = f"{summary.group} rollouts per prompt"
    settings = summary.answers.settings if summary.answers else {}
    grown = [name for name, one in settings.items() if one.growth != "prompts"]
    if not grown:
        return words
    where = f" in {join_words(grown)}" if has_several(summary) else ""
    return f"{words} at the reference batch, more or fewer with the batch{where}"


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
    several = has_several(summary)
    block = "settings and batches of a block together" if several else "batches of a block"
    order = ", ".join(
        f"{cell.setting} {cell.batch:,}" if several else f"{cell.batch:,}" for cell in summary.cells
    )
    if summary.one_at_a_time:
        return (
            f"Runs went one at a time in blocks of one seed, the {block} in random order, so that"
            f" a drift of the machine favours none of them. As run: {order}."
        )
    return (
        f"Runs are planned in blocks of one seed, the {block} in random order. Their records do"
        " not show that they went one at a time: a drift of the machine, or a run beside another,"
        f" may favour some of them. As planned: {order}."
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
    word = name_settings(summary)
    pooled = f"{word}s and batches" if several else "batches"
    words = (
        f"95 % t intervals on logarithms of ratios; residual variance pooled over the {pooled}"
        f" after removing seed effects, {summary.degrees_of_freedom} degrees of freedom."
        f" Residual standard deviation of the logarithm: {spread or text.NOTHING}."
    )
    if not several:
        return words
    shared = (
        f"Runs of one batch and seed in several {word}s ask the same prompts and share their random"
        f" numbers, which this variance takes for independent: intervals between {word}s at one"
        " batch are rather too wide, those between batches rather too narrow."
    )
    return f"{words} {shared}" + (f" {LAYOUT_INTERVALS}" if summary.layout_ratios else "")


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
