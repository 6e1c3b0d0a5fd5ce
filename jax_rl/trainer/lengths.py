"""Response lengths as a small histogram, which a record keeps of every iteration."""

import numpy as np

LENGTH_BINS = 32
"""Bins of the histogram, equal parts of 1 to task.max_response_length."""


def find_length_bins(limit: int) -> np.ndarray:
    """The bin of each length 1, 2, ..., limit: [limit] int64, ascending.

    A limit below LENGTH_BINS leaves some bins without a length, and each length its own.
    """
    return np.arange(limit) * LENGTH_BINS // limit


def count_lengths(lengths: np.ndarray, limit: int) -> list[int]:
    """Responses in each bin.

    Args:
      lengths: [n] integers from 1 to limit.
      limit: task.max_response_length.
    """
    counts = np.bincount(find_length_bins(limit)[lengths - 1], minlength=LENGTH_BINS)
    return [int(count) for count in counts]
