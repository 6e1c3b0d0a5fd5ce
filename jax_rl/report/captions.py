"""What stands beside each figure: its heading, how to read it, and its content in words."""

import dataclasses
from collections.abc import Callable

from jax_rl.report import text
from jax_rl.study.summary import BatchResult, StudySummary, arm_of


@dataclasses.dataclass(frozen=True)
class Caption:
    """Heading of a figure and one paragraph on how to read it."""

    heading: str
    reading: str


CAPTIONS = {
    "settings_time": Caption(
        "Training time to target against batch, by setting",
        "Each curve is one setting, both axes logarithmic; its lowest point is that setting's best"
        " batch, and the lowest of all the fastest pair. Where curves cross, which setting is the"
        " better one depends on the batch. Small marks are runs, open marks their geometric mean,"
        " arrows runs that did not reach the target.",
    ),
    "settings_throughput": Caption(
        "Throughput against batch, by setting",
        "Rollouts per second by the training clock, both axes logarithmic. A setting that climbs"
        " longer gains more from a larger batch.",
    ),
    "settings_samples": Caption(
        "Samples to target against batch, by setting",
        "Settings that differ by their layout alone should lie on each other but for noise: a"
        " layout says where the program lies and not what it learns. The table of samples between"
        " layouts tests it, over pairs of runs of one batch and seed. Rate rules, groups and"
        " updates may well move the samples.",
    ),
    "validation_samples": Caption(
        "Validation against samples",
        "One line per run, one colour per batch, dark for the smallest; the dashed line is the"
        " target and a dot marks where a run's isotonic fit crosses it. Where the curves of"
        " several batches lie on each other, a sample teaches the same at each of those batches,"
        " and only throughput decides. A curve to the right of them needs more samples.",
    ),
    "validation_seconds": Caption(
        "Validation against training time",
        "The same curves by the training clock, which leaves out compiling, validating and"
        " saving. The batch whose lines cross the target furthest to the left is the fastest;"
        " compare the distance between batches with the spread of the seeds of one batch.",
    ),
    "samples_to_target": Caption(
        "Samples to target against batch",
        "Both axes are logarithmic. A level line means that a larger batch costs no samples; a"
        " line that climbs as fast as the batch means that the larger batch saves no updates."
        " Small dots are runs, open circles their geometric mean. An arrow is a run that did not"
        " reach the target within its budget: its true place is higher.",
    ),
    "throughput": Caption(
        "Throughput against batch",
        "Rollouts per second by the training clock, both axes logarithmic. Diamonds are measured"
        " apart from the runs, whole iterations under one clock; they should lie on the line."
        " Generate and learn are shown as if each ran alone; the whole is slower than either,"
        " and where a line flattens, that phase gains nothing more from a larger batch.",
    ),
    "time_to_target": Caption(
        "Time to target and its two factors",
        "Above: time to the target by both clocks. Below: the same as ratios to the reference,"
        " on a logarithmic axis, on which factors add up as distances: the time line lies as far"
        " from ×1 as the samples line and the 1 / throughput line together. Below ×1 is better."
        " Vertical bars are 95 % intervals; arrows are one-sided bounds from runs that missed the"
        " target.",
    ),
    "phase_shares": Caption(
        "Phase shares",
        "Each second of a run belongs to one phase of the critical path; shares of the elapsed"
        " time of whole runs, in per cent. Coloured phases are on the training clock, grey ones"
        " only on the elapsed clock.",
    ),
}


def describe_figure(summary: StudySummary, name: str) -> str:
    """The content of a figure in words, for readers who do not see it."""
    runs = f"{len(summary.cells)} runs at {len(summary.batches)} batches"
    if name in ("validation_samples", "validation_seconds"):
        return (
            f"Line chart: {CAPTIONS[name].heading.lower()}, {runs}, target {summary.target:g}."
            " The crossings are in the table of runs."
        )

    def show_samples(result: BatchResult) -> str:
        return text.format_to_target(result.samples_to_target, result.samples_at_least)

    def show_time(result: BatchResult) -> str:
        if result.training_time is not None:
            return text.format_duration(result.training_time)
        return f"> {text.format_duration(text.seconds_at_least(result, 'training'))}"

    describe: Callable[[BatchResult], str] = {
        "samples": show_samples,
        "samples_to_target": show_samples,
        "throughput": lambda r: f"{text.format_number(r.throughput)} rollouts per second",
        "time": show_time,
        "time_to_target": show_time,
        "phase_shares": lambda r: ", ".join(
            f"{phase} {text.format_percent(share)}" for phase, share in r.phase_shares.items()
        ),
    }[name.removeprefix("settings_")]
    values = "; ".join(
        f"batch {text.format_arm(summary, arm_of(r))}: {describe(r)}" for r in summary.batches
    )
    return f"Chart: {CAPTIONS[name].heading.lower()}. {values}."
