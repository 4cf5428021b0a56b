"""The pure NumPy kernel set: the reference that the faster sets are compared with. Implements `Kernels`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast

import numpy as np

from mgwfbp.kernels import Array
from mgwfbp.kernels.numpy_conv import conv2d, conv2d_input_gradient, conv2d_weight_gradient
from mgwfbp.kernels.numpy_lrn import lrn, lrn_gradient
from mgwfbp.kernels.numpy_pool import average_pool, average_pool_gradient, max_pool, max_pool_gradient

__all__ = [
    "add",
    "average_pool",
    "average_pool_gradient",
    "batch_norm",
    "batch_norm_gradient",
    "batch_norm_sums",
    "channel_moments",
    "channel_sums",
    "conv2d",
    "conv2d_input_gradient",
    "conv2d_weight_gradient",
    "lrn",
    "lrn_gradient",
    "matmul",
    "max_pool",
    "max_pool_gradient",
    "name",
    "now",
    "relu",
    "relu_gradient",
    "sgd_update",
    "softmax_cross_entropy",
    "times",
    "xp",
]

name = "numpy"
xp = np

SUM_ROWS = 256  # one running float32 sum over all rows gave BatchNorm gradients off by 7e-3
WIDE = 1024  # elements in a row of the widened view


now = time.perf_counter_ns  # NumPy returns when it is done


def times(marks: Sequence[int]) -> list[int]:
    """The marks themselves."""
    return list(marks)


def matmul(a: Array, b: Array, out: Array | None = None) -> Array:
    """a @ b."""
    return np.matmul(a, b, out=out)


def relu(x: Array) -> Array:
    """max(x, 0)."""
    return np.maximum(x, 0)


def relu_gradient(y: Array, dy: Array) -> Array:
    """dy where y > 0, else 0."""
    return dy * (y > 0)


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


def channel_sums(x: Array) -> Array:
    """Sum over all axes but the last: blocks of 256 rows by GEMV in x's dtype, the blocks' sums in float64."""
    wide = _wide(x)
    total = np.zeros(wide.shape[1])
    ones = np.ones(SUM_ROWS, x.dtype)
    for start in range(0, len(wide), SUM_ROWS):
        block = wide[start : start + SUM_ROWS]
        total += ones[: len(block)] @ block
    return total.reshape(-1, x.shape[-1]).sum(axis=0).astype(x.dtype)


def channel_moments(x: Array) -> tuple[Array, Array]:
    """Mean and biased variance; the variance is that of the centred x, since mean(x²) − mean² cancels in float32."""
    count = x.size // x.shape[-1]
    mean = channel_sums(x) / count
    wide = _wide(x)
    centred = wide - _tiled(mean, wide)
    centred *= centred
    return mean, channel_sums(centred.reshape(x.shape)) / count


def _normalised(x: Array, mean: Array, inverse_std: Array) -> Array:
    """x̂ in the widened shape. It is made again where it is needed: memory costs more than the arithmetic."""
    wide = _wide(x)
    result = wide - _tiled(mean, wide)
    result *= _tiled(inverse_std, wide)
    return result


def batch_norm(
    x: Array, mean: Array, inverse_std: Array, gamma: Array, beta: Array, more: Array | None, relu: bool
) -> Array:
    """gamma · x̂ + beta, then `more` and max(…, 0)."""
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


def batch_norm_sums(x: Array, y: Array, dy: Array, mean: Array, inverse_std: Array, relu: bool) -> tuple[Array, Array]:
    """(Σ dy, Σ dy·x̂)."""
    dy = relu_gradient(y, dy) if relu else dy
    normalised = _normalised(x, mean, inverse_std)
    normalised *= dy.reshape(normalised.shape)
    return channel_sums(dy), channel_sums(normalised.reshape(x.shape))


def batch_norm_gradient(
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
    """scale · (dy − mean_dy − x̂ · mean_dy_x)."""
    dy = relu_gradient(y, dy) if relu else dy
    result = _normalised(x, mean, inverse_std)
    result *= _tiled(mean_dy_x, result)
    np.subtract(dy.reshape(result.shape), result, out=result)
    result -= _tiled(mean_dy, result)
    result *= _tiled(scale, result)
    return result.reshape(x.shape)


def add(a: Array, b: Array, relu: bool) -> Array:
    """a + b, and max(…, 0) of it."""
    y = a + b
    return np.maximum(y, 0, out=y) if relu else y


def softmax_cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Losses (rows,) and probabilities (rows, classes); the row's maximum is subtracted first, so nothing overflows."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    sums = exponentials.sum(axis=1, keepdims=True)
    losses = np.log(sums[:, 0]) - shifted[np.arange(len(labels)), labels]
    exponentials /= sums
    return losses, exponentials


def sgd_update(w: Array, g: Array, v: Array, lr: float, momentum: float, weight_decay: float, nesterov: bool) -> None:
    """Caffe's rule, in place: v ← momentum·v + lr·(g + weight_decay·w); w ← w − v.

    Nesterov: w ← w − ((1 + momentum)·v − momentum·v_old), where v_old is the v before. `g` is left as it is.
    """
    step = cast(np.ndarray, g * lr)
    if weight_decay:
        step += (lr * weight_decay) * w
    v *= momentum
    v += step
    w -= v
    if nesterov:  # (1+m)·v − m·v_old = v + (m·v − (v − step)), and v − step = m·v_old
        w -= momentum * v - (v - step)
