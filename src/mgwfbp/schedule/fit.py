"""Fit measured all-reduce times: one line, or a monotone table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class AffineFit(NamedTuple):
    """seconds ≈ a + b·bytes; `r2` is the share of the variance that the line explains (1 is perfect)."""

    a: float
    b: float
    r2: float


def fit_affine(nbytes: Sequence[float], seconds: Sequence[float], *, relative: bool = False) -> AffineFit:
    """Least-squares line through (nbytes, seconds) with a ≥ 0 and b ≥ 0.

    With `relative` each point is weighted by 1/seconds, so that the relative errors are minimised: sizes that span
    five decades would otherwise be fitted by the largest few alone, and `a` would be their noise.
    `r2` is always that of the unweighted residuals. Needs two different sizes; raises ValueError otherwise.
    """
    x, y = np.asarray(nbytes, float), np.asarray(seconds, float)
    if len(x) < 2 or np.ptp(x) == 0:
        raise ValueError("an affine fit needs two different sizes")
    weight = 1.0 / np.maximum(y, 1e-12) if relative else np.ones_like(y)
    scale = x.max()  # bytes and seconds are 15 orders apart: scale, or lstsq cuts the small column off
    columns = np.stack([np.ones_like(x), x / scale], axis=1) * weight[:, None]
    a, b = np.linalg.lstsq(columns, y * weight, rcond=None)[0]
    if b < 0:  # the best line with b ≥ 0 is then the constant one
        a, b = np.average(y, weights=weight**2), 0.0
    elif a < 0:  # the best line through the origin
        a, b = 0.0, float(columns[:, 1] @ (y * weight) / (columns[:, 1] @ columns[:, 1]))
    b /= scale
    residual, variance = np.sum((a + b * x - y) ** 2), np.sum((y - y.mean()) ** 2)
    r2 = 1.0 if variance == 0 else 1.0 - residual / variance
    return AffineFit(float(a), float(b), float(r2))


def monotone(values: Sequence[float]) -> np.ndarray:
    """The non-decreasing sequence nearest to `values` in least squares (pool adjacent violators), float64."""
    blocks: list[tuple[float, int]] = []  # (mean, how many values)
    for value in values:
        mean, count = float(value), 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean, count = (before * many + mean * count) / (many + count), count + many
        blocks.append((mean, count))
    return np.concatenate([np.full(count, mean) for mean, count in blocks]) if blocks else np.empty(0)
