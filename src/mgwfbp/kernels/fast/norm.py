"""Batch normalisation and its sums by numba: one pass over memory each.

The inner loops run over the channels, which are contiguous, so that the compiler vectorises them; where there are few,
several neighbouring pixels are looked at as one row of 256 elements, which is up to five times faster at 16 channels.
Sums go in blocks of 256 rows in float32 and over the blocks in float64: one running float32 sum over all rows gave
gradients off by 7e-3.
"""

from __future__ import annotations

import numba
import numpy as np

from mgwfbp.kernels.base import Kernels
from mgwfbp.kernels.fast.float32 import BLOCK, compiled, float32, tiled, wide
from mgwfbp.kernels.types import Array


class FastBatchNorm(Kernels):
    """The moments, and batch normalisation with what is fused into it."""

    @float32
    def channel_moments(self, x: Array) -> tuple[Array, Array]:
        means, variances = (moment.reshape(-1, x.shape[-1]) for moment in _moments(wide(x)))
        mean = means.mean(axis=0)
        variance = (variances + (means - mean) ** 2).mean(axis=0)
        return mean.astype(np.float32), variance.astype(np.float32)

    @float32
    def batch_norm(
        self, x: Array, mean: Array, inverse_std: Array, gamma: Array, beta: Array, more: Array | None, relu: bool
    ) -> Array:
        scale, rows = gamma * inverse_std, wide(x)
        y = np.empty(x.shape, np.float32)
        floor = np.float32(0 if relu else -np.inf)
        vectors = tiled(rows, scale, beta - mean * scale)
        if more is None:
            _batch_norm(rows, *vectors, floor, y.reshape(rows.shape))
        else:
            _batch_norm_add(rows, *vectors, wide(more), floor, y.reshape(rows.shape))
        return y

    @float32
    def batch_norm_sums(
        self, x: Array, y: Array, dy: Array, mean: Array, inverse_std: Array, relu: bool
    ) -> tuple[Array, Array]:
        rows = wide(x)
        sums, products = _batch_norm_sums(rows, wide(y), wide(dy), *tiled(rows, mean), relu)
        sums, products = (total.reshape(-1, x.shape[-1]).sum(axis=0) for total in (sums, products))
        return sums.astype(np.float32), (products * inverse_std).astype(np.float32)

    @float32
    def batch_norm_gradient(
        self,
        x: Array,
        y: Array,
        dy: Array,
        mean: Array,
        inverse_std: Array,
        scale: Array,
        mean_dy: Array,
        mean_dy_x: Array,
        relu: bool,
    ) -> Array:
        dx, rows = np.empty(x.shape, np.float32), wide(x)
        vectors = tiled(rows, mean, scale, mean_dy, inverse_std * mean_dy_x)
        _batch_norm_gradient(rows, wide(y), wide(dy), *vectors, relu, dx.reshape(rows.shape))
        return dx


@compiled
def _moments(x):  # type: ignore[no-untyped-def]
    rows, channels = x.shape
    blocks = (rows + BLOCK - 1) // BLOCK
    parts = np.empty((blocks, channels), np.float32)
    for block in numba.prange(blocks):
        part = np.zeros(channels, np.float32)
        for row in range(block * BLOCK, min(rows, (block + 1) * BLOCK)):
            for c in range(channels):
                part[c] += x[row, c]
        parts[block] = part
    mean = np.zeros(channels, np.float64)
    for block in range(blocks):
        mean += parts[block]
    mean /= rows
    centre = mean.astype(np.float32)
    for block in numba.prange(blocks):
        part = np.zeros(channels, np.float32)
        for row in range(block * BLOCK, min(rows, (block + 1) * BLOCK)):
            for c in range(channels):
                d = x[row, c] - centre[c]
                part[c] += d * d
        parts[block] = part
    variance = np.zeros(channels, np.float64)
    for block in range(blocks):
        variance += parts[block]
    return mean, variance / rows


@compiled
def _batch_norm_add(x, scale, shift, more, floor, y):  # type: ignore[no-untyped-def]
    rows, channels = x.shape
    for block in numba.prange((rows + BLOCK - 1) // BLOCK):
        for row in range(block * BLOCK, min(rows, (block + 1) * BLOCK)):
            for c in range(channels):
                y[row, c] = max(x[row, c] * scale[c] + shift[c] + more[row, c], floor)


@compiled
def _batch_norm(x, scale, shift, floor, y):  # type: ignore[no-untyped-def]
    rows, channels = x.shape
    for block in numba.prange((rows + BLOCK - 1) // BLOCK):
        for row in range(block * BLOCK, min(rows, (block + 1) * BLOCK)):
            for c in range(channels):
                y[row, c] = max(x[row, c] * scale[c] + shift[c], floor)


@compiled
def _batch_norm_sums(x, y, dy, mean, relu):  # type: ignore[no-untyped-def]
    rows, channels = x.shape
    blocks = (rows + BLOCK - 1) // BLOCK
    parts = np.empty((blocks, 2, channels), np.float32)
    for block in numba.prange(blocks):
        sums, products = np.zeros(channels, np.float32), np.zeros(channels, np.float32)
        for row in range(block * BLOCK, min(rows, (block + 1) * BLOCK)):
            for c in range(channels):
                d = dy[row, c] if not relu or y[row, c] > 0 else np.float32(0)
                sums[c] += d
                products[c] += d * (x[row, c] - mean[c])
        parts[block, 0] = sums
        parts[block, 1] = products
    total = np.zeros((2, channels), np.float64)
    for block in range(blocks):
        total += parts[block]
    return total


@compiled
def _batch_norm_gradient(x, y, dy, mean, scale, mean_dy, slope, relu, dx):  # type: ignore[no-untyped-def]
    rows, channels = x.shape
    for block in numba.prange((rows + BLOCK - 1) // BLOCK):
        for row in range(block * BLOCK, min(rows, (block + 1) * BLOCK)):
            for c in range(channels):
                d = dy[row, c] if not relu or y[row, c] > 0 else np.float32(0)
                dx[row, c] = scale[c] * (d - mean_dy[c] - (x[row, c] - mean[c]) * slope[c])
