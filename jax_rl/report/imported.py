"""What a reader must know to trust a study that was made from other trainers' logs."""

from jax_rl.report import text
from jax_rl.report.trust import list_facts
from jax_rl.study.summary import StudySummary


def list_imported_facts(summary: StudySummary) -> list[tuple[str, str]]:
    """The terms of any study, without what only its own trainer could vouch for."""
    words = {
        "Set beforehand": _describe_rules(summary),
        "Start of every run": (
            f"Mean of the first scores logged: {text.format_score(summary.start_score)}. Whether"
            f" all runs began with the same weights ({summary.checkpoint}) the logs do not tell."
        ),
        "Validation": _describe_validation(summary),
        "Order of the runs": (
            "When the runs were made, and whether another job shared their machines, the logs do"
            " not tell: a drift of the machine may favour a batch."
        ),
        "Two clocks": CLOCKS,
        "Checks of the clock": _describe_checks(summary),
        "Where and with what": (
            f"{summary.device}. Versions, flags and code of the trainer are not known."
        ),
    }
    return [(term, words.get(term, sentence)) for term, sentence in list_facts(summary)]


CLOCKS = (
    "Elapsed time: what the logs give as the run's seconds. Training time: the same without"
    " validations and checkpoints, as far as their seconds were logged; where they were not, both"
    " clocks are nearly one. Seconds without a named phase are in the phase other."
)


def _describe_rules(summary: StudySummary) -> str:
    return (
        f"Imported logs: whether the target score {summary.target:g} was set before the runs, and"
        " when each was meant to stop, they do not tell. Rates are those logged"
        f" ({text.format_rate(summary.reference_rate)} at the reference batch"
        f" {summary.reference_batch:,}). A run that misses the target within its log stays in every"
        " table as censored (> N)."
    )


def _describe_validation(summary: StudySummary) -> str:
    prompts = summary.validation_prompts
    held = f"{prompts:,} prompts" if prompts else "An unknown number of prompts"
    return (
        f"{held}, scored every {summary.validation_every:,} samples at the median; batches that are"
        " looked at less often seem slower, so compare them with care where notes say that their"
        " grids differ. Scores scatter about the isotonic fit with a standard deviation of"
        f" {text.format_spread(summary.validation_noise)}."
    )


def _describe_checks(summary: StudySummary) -> str:
    shares = [cell.other_share for cell in summary.cells if cell.finished]
    return (
        "The clock of a log cannot be checked. Largest share of time without a named phase:"
        f" {text.format_percent(max(shares, default=None))}."
    )
