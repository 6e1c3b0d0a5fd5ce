"""The histogram of response lengths, by hand."""

import numpy as np
import pytest

from jax_rl.trainer.lengths import LENGTH_BINS, count_lengths, find_length_bins


@pytest.mark.parametrize(
    ("limit", "firsts"),
    [
        (32, list(range(1, 33))),  # each length its own
        (64, list(range(1, 65, 2))),
        # A hundred in 32 parts of 3.125: a bin begins at the first length past k x 3.125.
        (100, [1, 5, 8, 11, 14, 17, 20, 23, 26, 30, 33, 36, 39, 42, 45, 48,
               51, 55, 58, 61, 64, 67, 70, 73, 76, 80, 83, 86, 89, 92, 95, 98]),
    ],
)  # fmt: skip
def test_bins_begin_where_they_should(limit: int, firsts: list[int]) -> None:
    bins = find_length_bins(limit)
    assert len(bins) == limit
    assert (np.flatnonzero(np.diff(bins, prepend=-1)) + 1).tolist() == firsts


def test_a_short_limit_leaves_bins_empty() -> None:
    assert find_length_bins(4).tolist() == [0, 8, 16, 24]


def test_counts_by_hand() -> None:
    counts = count_lengths(np.array([1, 2, 2, 3, 64, 63, 10], np.int32), 64)
    expected = [0] * LENGTH_BINS
    expected[0], expected[1], expected[4], expected[31] = 3, 1, 1, 2
    assert counts == expected
    assert all(type(count) is int for count in counts)  # as JSON needs them
