"""Sums over channels and batch normalisation in pure NumPy, on a widened view: its inner loop is long."""

from __future__ import annotations

import numpy as np

from mgwfbp.kernels.types import Array

SUM_ROWS = 256  # one running float32 sum over all rows gave BatchNorm gradients off by 7e-3
WIDE = 1024  # elements in a row of the widened view


class BatchNorm:
    """Per-channel sums, and what batch normalisation needs of them. Channels are the last axis."""

    def channel_sums(self, x: Array) -> Array:
        """Sum over all axes but the last: blocks of 256 rows by GEMV in x's dtype, the blocks' sums in float64."""
        wide = _wide(x)
        total = np.zeros(wide.shape[1])
        ones = np.ones(SUM_ROWS, x.dtype)
        for start in range(0, len(wide), SUM_ROWS):
            block = wide[start : start + SUM_ROWS]
            total += ones[: len(block)] @ block
        return total.reshape(-1, x.shape[-1]).sum(axis=0).astype(x.dtype)

    def channel_moments(self, x: Array) -> tuple[Array, Array]:
        """Mean and (biased) variance over all axes but the last.

        The variance is that of the centred x, since mean(x²) − mean² cancels in float32.
        """
        count = x.size // x.shape[-1]
        mean = self.channel_sums(x) / count
        wide = _wide(x)
        centred = wide - _tiled(mean, wide)
        centred *= centred
        return mean, self.channel_sums(centred.reshape(x.shape)) / count

    def batch_norm(
        self, x: Array, mean: Array, inverse_std: Array, gamma: Array, beta: Array, more: Array | None, relu: bool
    ) -> Array:
        """gamma · x̂ + beta (+ `more`, of x's shape), each channel its own; max(…, 0) of it with `relu`.

        x̂ = (x − mean) · inverse_std.
        """
        wide = _wide(x)
        scale = gamma * inverse_std
        result = wide - _tiled(mean, wide)
        result *= _tiled(scale, wide)
        result += _tiled(beta, wide)
        if more is not None:
            result += more.reshape(result.shape)
        if relu:
            np.maximum(result, 0, out=result)
        return result.reshape(x.shape)

    def batch_norm_sums(
        self, x: Array, y: Array, dy: Array, mean: Array, inverse_std: Array, relu: bool
    ) -> tuple[Array, Array]:
        """(Σ dy, Σ dy·x̂) over all axes but the last; with `relu` dy counts only where y > 0."""
        dy = dy * (y > 0) if relu else dy
        normalised = _normalised(x, mean, inverse_std)
        normalised *= dy.reshape(normalised.shape)
        return self.channel_sums(dy), self.channel_sums(normalised.reshape(x.shape))

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
        """scale · (dy − mean_dy − x̂ · mean_dy_x), each channel its own; with `relu` dy counts only where y > 0."""
        dy = dy * (y > 0) if relu else dy
        result = _normalised(x, mean, inverse_std)
        result *= _tiled(mean_dy_x, result)
        np.subtract(dy.reshape(result.shape), result, out=result)
        result -= _tiled(mean_dy, result)
        result *= _tiled(scale, result)
        return result.reshape(x.shape)


def _wide(x: Array) -> Array:
    """`x` as (rows, r·channels), r·channels near 1024: NumPy's inner loop over 16 channels would be all overhead."""
    channels = x.shape[-1]
    rows, r = x.size // channels, 1
    while rows % (2 * r) == 0 and 2 * r * channels <= WIDE and rows:
        r *= 2
    return x.reshape(-1, r * channels) if x.size else x.reshape(0, channels)


def _tiled(channel_values: Array, like: Array) -> Array:
    """A vector a channel, repeated to the row length of the widened view `like`."""
    return np.tile(channel_values, like.shape[1] // len(channel_values))


def _normalised(x: Array, mean: Array, inverse_std: Array) -> Array:
    """x̂ in the widened shape. It is made again where it is needed: memory costs more than the arithmetic."""
    wide = _wide(x)
    result = wide - _tiled(mean, wide)
    result *= _tiled(inverse_std, wide)
    return result
