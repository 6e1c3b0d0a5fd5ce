"""Critical values against published tables, quadrature and scipy's own Dunnett intervals."""

import math

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from jax_rl.study.intervals import fit_additive
from jax_rl.study.simultaneous import correlate_contrasts, find_critical_value


def correlate_equally(count, rho=0.5):
    return np.full((count, count), rho) + (1 - rho) * np.eye(count)


def solve_by_quadrature(count, freedom, *, one_sided):
    """Equicorrelated t with rho = 1/2: t_i = (z0 + z_i) / sqrt(2) / s, integrated over z0 and s."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    ranks = (np.arange(2000) + 0.5) / 2000
    spread = np.sqrt(stats.chi2.ppf(ranks, freedom) / freedom)

    def cover(critical):
        above = special.ndtr(math.sqrt(2) * critical * spread + nodes[:, None])
        below = special.ndtr(nodes[:, None] - math.sqrt(2) * critical * spread)
        inside = above if one_sided else above - below
        return (weights[:, None] * inside**count).sum(axis=0).mean()

    return optimize.brentq(lambda critical: cover(critical) - 0.95, 1.0, 12.0)


# Dunnett (1964, New tables for multiple comparisons with a control), 5 %, by degrees of freedom,
# for 1 to 9 treatments.
TWO_SIDED = {
    5: [2.57, 3.03, 3.29, 3.48, 3.62, 3.73, 3.82, 3.90, 3.97],
    10: [2.23, 2.57, 2.76, 2.89, 2.99, 3.07, 3.14, 3.19, 3.24],
    20: [2.09, 2.38, 2.54, 2.65, 2.73, 2.80, 2.86, 2.90, 2.95],
}
# Dunnett (1955), one-sided.
ONE_SIDED = {10: [1.81, 2.15, 2.34, 2.47, 2.56, 2.64, 2.70, 2.76, 2.81]}


@pytest.mark.parametrize(
    ("table", "one_sided"), [(TWO_SIDED, False), (ONE_SIDED, True)], ids=["two", "one"]
)
def test_published_tables(table, one_sided):
    for freedom, row in table.items():
        for count, expected in enumerate(row, 1):
            found = find_critical_value(correlate_equally(count), freedom, one_sided=one_sided)
            assert found == pytest.approx(expected, abs=0.0075), (freedom, count)


@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize(("count", "freedom"), [(2, 2), (4, 8), (9, 18), (39, 78)])
def test_three_digits_against_quadrature(count, freedom, one_sided):
    found = find_critical_value(correlate_equally(count), freedom, one_sided=one_sided)
    assert found == pytest.approx(
        solve_by_quadrature(count, freedom, one_sided=one_sided), rel=2e-3
    )


def test_one_comparison_is_students_t():
    for freedom in (1, 2, 8, 100):
        for level in (0.9, 0.99):
            two = find_critical_value(np.eye(1), freedom, level=level)
            one = find_critical_value(np.eye(1), freedom, level=level, one_sided=True)
            assert two == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=1e-5)
            assert one == pytest.approx(stats.t.ppf(level, freedom), rel=1e-5)


def test_singular_correlations():
    # Comparisons that are the same one, or mirror each other, count once.
    same = np.ones((3, 3))
    assert find_critical_value(same, 8) == pytest.approx(stats.t.ppf(0.975, 8), rel=1e-5)
    mirrored = np.array([[1.0, -1.0], [-1.0, 1.0]])
    one = find_critical_value(mirrored, 8, one_sided=True)
    assert one == pytest.approx(stats.t.ppf(0.975, 8), rel=1e-5)


def test_unequal_correlations_against_bivariate_integral():
    rho, freedom = 0.2, 6
    found = find_critical_value(np.array([[1.0, rho], [rho, 1.0]]), freedom)
    density = stats.multivariate_t(shape=[[1, rho], [rho, 1]], df=freedom).pdf
    inside, _ = integrate.dblquad(
        lambda y, x: density([x, y]), -found, found, -found, found, epsabs=1e-6
    )
    assert inside == pytest.approx(0.95, abs=2e-4)


def test_same_arguments_give_the_same_number():
    first = find_critical_value(correlate_equally(5), 7)
    find_critical_value.__globals__["_solve"].cache_clear()
    assert find_critical_value(correlate_equally(5), 7) == first


def test_nothing_to_compare():
    assert math.isnan(find_critical_value(np.zeros((0, 0)), 8))
    assert math.isnan(find_critical_value(np.eye(2), 0))


def test_correlation_follows_from_the_design():
    arms, seeds = zip(*[(a, s) for a in range(4) for s in range(3)], strict=True)
    full = fit_additive(arms, seeds, [0.0] * 12)
    np.testing.assert_allclose(
        correlate_contrasts(full, range(4), against=0), correlate_equally(3), atol=1e-9
    )
    # One way: all runs share a block, 2, 3, 5 runs; correlation of arms 1 and 2 against 0 is
    # (1/2) / sqrt((1/2 + 1/3) (1/2 + 1/5)).
    arms = [0] * 2 + [1] * 3 + [2] * 5
    one_way = fit_additive(arms, [0] * 10, [0.0] * 10)
    expected = 0.5 / math.sqrt((1 / 2 + 1 / 3) * (1 / 2 + 1 / 5))
    assert correlate_contrasts(one_way, [1, 2], against=0)[0, 1] == pytest.approx(expected)
    # An arm that shares no seed with the reference is not compared.
    apart = fit_additive([0, 0, 1, 2], [0, 1, 1, 2], [0.0] * 4)
    assert correlate_contrasts(apart, [0, 1, 2], against=0).shape == (1, 1)


def test_agrees_with_scipys_dunnett():
    rng = np.random.default_rng(3)
    groups = [rng.normal(size=n) for n in (6, 4, 8, 5)]
    arms = [i for i, group in enumerate(groups) for _ in group]
    fit = fit_additive(arms, [0] * len(arms), np.concatenate(groups))
    critical = find_critical_value(
        correlate_contrasts(fit, [1, 2, 3], against=0), fit.degrees_of_freedom
    )
    theirs = stats.dunnett(*groups[1:], control=groups[0]).confidence_interval(0.95)
    for i, n in enumerate((4, 8, 5)):
        half = critical * fit.residual_sd * math.sqrt(1 / n + 1 / 6)
        # scipy integrates by random points, to about three digits.
        assert (theirs.high[i] - theirs.low[i]) / 2 == pytest.approx(half, rel=1e-2)
