"""Which curves the batches lie on: samples to target, throughput, and the score on its way."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from jax_rl.report import axes as shared
from jax_rl.report import text
from jax_rl.report.section import Drawing, Section, Table
from jax_rl.report.sections.quantities import add_ends, set_batches, show_ends, show_quantity
from jax_rl.study.curves.fits import CurveFit, SettingFits
from jax_rl.study.curves.scores import ScoreFit
from jax_rl.study.curves.shapes import CURVES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_METHODS = (
    "Curves are fitted by least squares to the mean logarithms of the batches in which every run"
    " reached the target, weighted by their runs; at most two parameters per five points.",
    "Intervals are profile-likelihood intervals of 95 %: the values for which the residual sum of"
    " squares grows by no more than the variance times the F quantile. The variance is that of"
    " runs about arm and seed effects, or of the means about the curve where they scatter by more"
    " than that explains (p < 0.05).",
    "A turning point outside the measured batches is a bound, and so is the level that it leaves"
    " to extrapolation.",
    "S(B) = S_min (1 + B / B_crit); T(B) = T_max B / (B + B_half), or T_max min(1, B / B_flat).",
    "Score: s0 + (A - s0) / (1 + (x_half / x)^k) in samples x, fitted to the first 60 % of the grid"
    " and judged on the rest by the root of its mean squared error, beside that of the last fitted"
    " score carried on.",
)
_UNITS = {"samples": "rollouts", "throughput": "rollouts/s"}
_TURNS = {
    "samples": "Samples to target begin to grow with the batch at B_crit =",
    "throughput": "Throughput turns at",
}


def show_fits(fits: Sequence[SettingFits], scores: Sequence[ScoreFit] = ()) -> Section | None:
    """Levels, turning points and predictions; None where there is nothing to fit."""
    if not any(curve.batches for one in fits for curve in _list_curves(one)):
        return None
    tables = [_make_table(fits)]
    if any(not score.reason for score in scores):
        tables.append(_make_score_table(scores, several=len(fits) > 1))
    return Section(
        id="fits",
        title="Which curves do the batches lie on?",
        paragraphs=[*_describe_all(fits), *_describe_scores(scores)],
        tables=tables,
        drawings=list(_list_drawings(fits)),
        methods=_METHODS,
    )


def _list_curves(one: SettingFits) -> list[CurveFit]:
    return [one.samples, *one.throughput]


def _describe_all(fits: Sequence[SettingFits]) -> Iterator[str]:
    for one in fits:
        where = f"{one.setting}: " if len(fits) > 1 else ""
        throughput = [curve for curve in one.throughput if curve.curve == one.closer]
        for curve in (one.samples, *(throughput or one.throughput[:1])):
            yield where + _describe_curve(curve)


def _describe_curve(curve: CurveFit) -> str:
    if curve.reason:
        return f"No curve of {curve.measure} is fitted: {curve.reason}."
    turn = show_quantity(curve.turning_point, "rollouts")
    words = f"{_TURNS[curve.measure]} {turn}{add_ends(curve.turning_point)}"
    if curve.turning_point is not None and curve.turning_point.bound:
        words += ", outside the measured batches"
    level = show_quantity(curve.level, _UNITS[curve.measure])
    words += f"; {'S_min' if curve.measure == 'samples' else 'T_max'} = {level} ({curve.curve})."
    if curve.lack_of_fit is not None and curve.lack_of_fit < 0.05:
        words += " The batches scatter about this curve more than the seeds explain."
    return words


def _make_table(fits: Sequence[SettingFits]) -> Table:
    rows = [
        [
            *([one.setting] if len(fits) > 1 else []),
            f"{curve.measure}: {curve.curve}",
            *_show_curve(curve),
        ]
        for one in fits
        for curve in _list_curves(one)
    ]
    return Table(
        id="fits",
        title="Curves over the batches",
        about="Level: S_min in rollouts or T_max in rollouts/s; turning point in rollouts. p: how"
        " often residuals as large as these would come up if the curve were right. The interval of"
        " a level is for these seeds: what others would move in all batches alike is not in it.",
        header=[
            *(["setting"] if len(fits) > 1 else []),
            "curve",
            "points",
            "level",
            "95 %",
            "turning point",
            "95 %",
            "residual",
            "p",
            "not fitted because",
        ],
        rows=rows,
    )


def _show_curve(curve: CurveFit) -> list[str]:
    return [
        str(len(curve.batches)),
        show_quantity(curve.level),
        show_ends(curve.level),
        show_quantity(curve.turning_point),
        show_ends(curve.turning_point),
        text.format_percent(curve.residual_sd),
        text.format_score(curve.lack_of_fit),
        curve.reason or text.NOTHING,
    ]


def _describe_scores(scores: Sequence[ScoreFit]) -> list[str]:
    known = [score for score in scores if not score.reason]
    if not known:
        return []
    better = sum(bool(score.predicts) for score in known)
    return [
        f"A sigmoid fitted to the first part of the score's curve predicts the rest better than the"
        f" last score carried on in {better} of {len(known)} batches."
    ]


def _make_score_table(scores: Sequence[ScoreFit], *, several: bool) -> Table:
    return Table(
        id="score_fits",
        title="The score extrapolated",
        about="RMSE of the held-out points; an asymptote's open side means that the fitted part"
        " does not bound it.",
        header=[
            *(["setting"] if several else []),
            "batch",
            "points fitted",
            "held out",
            "asymptote",
            "95 %",
            "half way at, samples",
            "RMSE, sigmoid",
            "RMSE, last score",
            "not fitted because",
        ],
        rows=[
            [
                *([score.setting] if several else []),
                f"{score.batch:,}",
                str(score.points_fitted),
                str(score.points_held_out),
                show_quantity(score.asymptote),
                show_ends(score.asymptote),
                text.format_number(score.midpoint),
                text.format_score(score.rmse_curve),
                text.format_score(score.rmse_carried),
                score.reason or text.NOTHING,
            ]
            for score in scores
        ],
    )


def _list_drawings(fits: Sequence[SettingFits]) -> Iterator[Drawing]:
    for number, one in enumerate(fits):
        suffix, where = ("", "") if len(fits) == 1 else (f"_{number + 1}", f" ({one.setting})")
        # Without a fit the plain figures of samples and throughput show the same points.
        if not one.samples.reason:
            yield Drawing(
                name=f"fit_samples{suffix}",
                heading=f"Samples to target and their curve{where}",
                reading="Flat left of the turning point (dashed), rising along the batch beyond.",
                description=_describe_curve(one.samples),
                draw=partial(_draw_curves, curves=[one.samples]),
            )
        known = [curve for curve in one.throughput if not curve.reason]
        if known:
            closer = next(curve for curve in known if curve.curve == one.closer)
            yield Drawing(
                name=f"fit_throughput{suffix}",
                heading=f"Throughput and its curves{where}",
                reading="Rising along the batch left of the turning point (dashed), flat beyond.",
                description=_describe_curve(closer),
                draw=partial(_draw_curves, curves=known),
            )


def _draw_curves(axes: "Axes", *, curves: Sequence[CurveFit]) -> None:
    first = curves[0]
    smooth = np.geomspace(first.batches[0], first.batches[-1], 100)
    drawn = [*first.measured]
    for curve, color in zip(curves, ("#0072b2", "#d55e00"), strict=False):
        values = _evaluate(curve, smooth)
        axes.plot(smooth, values, color=color, lw=1.8, label=curve.curve)
        turn = curve.turning_point
        if turn is not None and not turn.bound and turn.estimate is not None:
            axes.axvline(turn.estimate, color=color, lw=1.0, ls="--")
        drawn += [float(value) for value in values]
    axes.plot(first.batches, first.measured, "o", color=shared.INK, mfc="white", ms=8, mew=1.6)
    set_batches(axes, first.batches)
    shared.set_log_axis(axes, drawn)
    axes.set_ylabel(
        "samples to target (rollouts)" if first.measure == "samples" else "rollouts per second"
    )
    axes.legend()


def _evaluate(curve: CurveFit, batches: np.ndarray) -> np.ndarray:
    """The fitted curve between its batches; of one beyond its turning point, straight lines."""
    level, turn = curve.level, curve.turning_point
    if level is None or turn is None or level.estimate is None or turn.estimate is None:
        return np.full(len(batches), np.nan)
    if level.bound or turn.bound:
        return np.exp(np.interp(np.log(batches), np.log(curve.batches), np.log(curve.fitted)))
    return CURVES[curve.curve].evaluate(batches, level=level.estimate, turning_point=turn.estimate)
