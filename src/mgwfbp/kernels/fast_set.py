"""The fast CPU kernel set: convolutions by oneDNN, element-wise passes fused by numba. float32; the rest is NumPy's.

Implements `Kernels`. The inner loops run over the channels, which are contiguous, so that the compiler vectorises them;
where there are few, several neighbouring pixels are looked at as one row of 256 elements, which is up to five times
faster at 16 channels. Sums go in blocks of 256 rows in float32 and over the blocks in float64: one running float32 sum
over all rows gave gradients off by 7e-3. Threads are numba's and oneDNN's own.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np

from mgwfbp.kernels import Array, Pair, fast_conv, fast_pool, numpy_set, onednn
from mgwfbp.kernels.numpy_set import channel_sums, now, softmax_cross_entropy, times

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
    "load",
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

name = "fast"
xp = np

BLOCK = 256
WIDE = 256
compiled: Any = numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"}, parallel=True)


@cache
def load() -> None:
    """Load oneDNN and compile every loop (or read it from numba's cache). Raises OSError or RuntimeError."""
    onednn.onednn()
    x = np.ones((2, 3, 4, 8), np.float32)
    channel = np.ones(8, np.float32)
    channel_moments(x)
    y = batch_norm(x, channel, channel, channel, channel, None, True)
    batch_norm(x, channel, channel, channel, channel, x, True)
    batch_norm_sums(x, y, x, channel, channel, True)
    batch_norm_gradient(x, y, x, channel, channel, channel, channel, channel, True)
    relu_gradient(relu(x), add(x, x, True))
    wide = np.ones((1, 3, 3, fast_conv.CHANNELS), np.float32)
    conv2d_weight_gradient(wide, wide, np.empty((3, 3, *wide.shape[3:] * 2), np.float32), (1, 1), (1, 1), 1)
    one, none = (1, 1), (0, 0)
    share = np.ones((3, 4, 1), np.float32)
    max_pool_gradient(x, max_pool(x, one, one, none, (3, 4)), x, one, one, none)
    average_pool_gradient(average_pool(x, one, one, none, share), x.shape, one, one, none, share)
    lrn_gradient(x, *lrn(x, 5, 1.0, fast_pool.CAFFE_BETA, 1.0), x, 5, 1.0, fast_pool.CAFFE_BETA)
    sgd_update(x.ravel(), y.ravel(), x.ravel(), 0.1, 0.9, 0.1, True)


def _wide(x: Array) -> Array:
    """`x` as a contiguous (rows, r · channels) array: r pixels side by side, 256 elements if the sizes allow it."""
    channels = x.shape[-1]
    pixels, r = x.size // channels, 1
    while pixels % (2 * r) == 0 and 2 * r * channels <= WIDE:
        r *= 2
    return np.ascontiguousarray(x).reshape(-1, r * channels)


def _tiled(wide: Array, *vectors: Array) -> list[Array]:
    """Vectors of one value a channel, repeated to the row length of `wide`."""
    return [np.concatenate([vector] * (wide.shape[1] // len(vector))) for vector in vectors]


def _fits(*arrays: Array) -> bool:
    """Whether the compiled loops are for these arrays: float32, and not empty."""
    return all(array.dtype == np.float32 and array.size for array in arrays)


def conv2d(x: Array, weight: Array, bias: Array | None, stride: Pair, pad: Pair, groups: int) -> Array:
    """As `Kernels.conv2d`."""
    chosen = onednn if _fits(x, weight) else numpy_set
    return chosen.conv2d(x, weight, bias, stride, pad, groups)


def conv2d_input_gradient(
    dy: Array, weight: Array, x_shape: tuple[int, ...], stride: Pair, pad: Pair, groups: int
) -> Array:
    """As `Kernels.conv2d_input_gradient`."""
    chosen = onednn if _fits(dy, weight) else numpy_set
    return chosen.conv2d_input_gradient(dy, weight, x_shape, stride, pad, groups)


def conv2d_weight_gradient(x: Array, dy: Array, out: Array, stride: Pair, pad: Pair, groups: int) -> None:
    """As `Kernels.conv2d_weight_gradient`."""
    chosen = fast_conv if _fits(x, dy) else numpy_set
    chosen.conv2d_weight_gradient(x, dy, out, stride, pad, groups)


def matmul(a: Array, b: Array, out: Array | None = None) -> Array:
    """As `Kernels.matmul`. By oneDNN: BLAS has threads of its own, which would fight OpenMP's for the cores."""
    if not _fits(a, b) or not all(4 in matrix.strides for matrix in (a, b)):
        return numpy_set.matmul(a, b, out)
    if out is None:
        out = np.empty((a.shape[0], b.shape[1]), np.float32)
    onednn.gemm(a, b, out)
    return out


def max_pool(x: Array, kernel: Pair, stride: Pair, pad: Pair, size: Pair) -> Array:
    """As `Kernels.max_pool`."""
    chosen = fast_pool if _fits(x) else numpy_set
    return chosen.max_pool(np.ascontiguousarray(x), kernel, stride, pad, size)


def max_pool_gradient(x: Array, y: Array, dy: Array, kernel: Pair, stride: Pair, pad: Pair) -> Array:
    """As `Kernels.max_pool_gradient`."""
    chosen = fast_pool if _fits(x, dy) else numpy_set
    return chosen.max_pool_gradient(np.ascontiguousarray(x), y, np.ascontiguousarray(dy), kernel, stride, pad)


def average_pool(x: Array, kernel: Pair, stride: Pair, pad: Pair, share: Array) -> Array:
    """As `Kernels.average_pool`."""
    chosen = fast_pool if _fits(x) else numpy_set
    return chosen.average_pool(np.ascontiguousarray(x), kernel, stride, pad, share)


def average_pool_gradient(
    dy: Array, x_shape: tuple[int, ...], kernel: Pair, stride: Pair, pad: Pair, share: Array
) -> Array:
    """As `Kernels.average_pool_gradient`."""
    chosen = fast_pool if _fits(dy) else numpy_set
    return chosen.average_pool_gradient(np.ascontiguousarray(dy), x_shape, kernel, stride, pad, share)


def lrn(x: Array, size: int, alpha: float, beta: float, k: float) -> tuple[Array, Array]:
    """As `Kernels.lrn`."""
    if not _fits(x) or beta != fast_pool.CAFFE_BETA:
        return numpy_set.lrn(x, size, alpha, beta, k)
    return fast_pool.lrn(np.ascontiguousarray(x), size, alpha, k)


def lrn_gradient(x: Array, y: Array, scale: Array, dy: Array, size: int, alpha: float, beta: float) -> Array:
    """As `Kernels.lrn_gradient`."""
    if not _fits(x, dy) or beta != fast_pool.CAFFE_BETA:
        return numpy_set.lrn_gradient(x, y, scale, dy, size, alpha, beta)
    return fast_pool.lrn_gradient(np.ascontiguousarray(x), y, scale, np.ascontiguousarray(dy), size, alpha)


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


def channel_moments(x: Array) -> tuple[Array, Array]:
    """As `Kernels.channel_moments`."""
    if not _fits(x):
        return numpy_set.channel_moments(x)
    means, variances = (moment.reshape(-1, x.shape[-1]) for moment in _moments(_wide(x)))
    mean = means.mean(axis=0)
    variance = (variances + (means - mean) ** 2).mean(axis=0)
    return mean.astype(np.float32), variance.astype(np.float32)


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


def batch_norm(
    x: Array, mean: Array, inverse_std: Array, gamma: Array, beta: Array, more: Array | None, relu: bool
) -> Array:
    """As `Kernels.batch_norm`."""
    if not _fits(x):
        return numpy_set.batch_norm(x, mean, inverse_std, gamma, beta, more, relu)
    scale, wide = gamma * inverse_std, _wide(x)
    y = np.empty(x.shape, np.float32)
    floor = np.float32(0 if relu else -np.inf)
    vectors = _tiled(wide, scale, beta - mean * scale)
    if more is None:
        _batch_norm(wide, *vectors, floor, y.reshape(wide.shape))
    else:
        _batch_norm_add(wide, *vectors, _wide(more), floor, y.reshape(wide.shape))
    return y


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


def batch_norm_sums(x: Array, y: Array, dy: Array, mean: Array, inverse_std: Array, relu: bool) -> tuple[Array, Array]:
    """As `Kernels.batch_norm_sums`."""
    if not _fits(x, dy):
        return numpy_set.batch_norm_sums(x, y, dy, mean, inverse_std, relu)
    wide = _wide(x)
    sums, products = _batch_norm_sums(wide, _wide(y), _wide(dy), *_tiled(wide, mean), relu)
    sums, products = (total.reshape(-1, x.shape[-1]).sum(axis=0) for total in (sums, products))
    return sums.astype(np.float32), (products * inverse_std).astype(np.float32)


@compiled
def _batch_norm_gradient(x, y, dy, mean, scale, mean_dy, slope, relu, dx):  # type: ignore[no-untyped-def]
    rows, channels = x.shape
    for block in numba.prange((rows + BLOCK - 1) // BLOCK):
        for row in range(block * BLOCK, min(rows, (block + 1) * BLOCK)):
            for c in range(channels):
                d = dy[row, c] if not relu or y[row, c] > 0 else np.float32(0)
                dx[row, c] = scale[c] * (d - mean_dy[c] - (x[row, c] - mean[c]) * slope[c])


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
    """As `Kernels.batch_norm_gradient`."""
    if not _fits(x, dy):
        return numpy_set.batch_norm_gradient(x, y, dy, mean, inverse_std, scale, mean_dy, mean_dy_x, relu)
    dx, wide = np.empty(x.shape, np.float32), _wide(x)
    vectors = _tiled(wide, mean, scale, mean_dy, inverse_std * mean_dy_x)
    _batch_norm_gradient(wide, _wide(y), _wide(dy), *vectors, relu, dx.reshape(wide.shape))
    return dx


@compiled
def _relu_gradient(y, dy, dx):  # type: ignore[no-untyped-def]
    for i in numba.prange(len(y)):
        dx[i] = dy[i] if y[i] > 0 else np.float32(0)


def relu_gradient(y: Array, dy: Array) -> Array:
    """As `Kernels.relu_gradient`."""
    if not _fits(y, dy):
        return numpy_set.relu_gradient(y, dy)
    dx = np.empty(y.shape, np.float32)
    _relu_gradient(np.ascontiguousarray(y).reshape(-1), np.ascontiguousarray(dy).reshape(-1), dx.reshape(-1))
    return dx


@compiled
def _add(a, b, floor, y):  # type: ignore[no-untyped-def]
    for i in numba.prange(len(y)):
        y[i] = max(a[i] + b[i], floor)


def add(a: Array, b: Array, relu: bool) -> Array:
    """As `Kernels.add`."""
    if not _fits(a, b):
        return numpy_set.add(a, b, relu)
    y = np.empty(a.shape, np.float32)
    floor = np.float32(0 if relu else -np.inf)
    _add(np.ascontiguousarray(a).reshape(-1), np.ascontiguousarray(b).reshape(-1), floor, y.reshape(-1))
    return y


def relu(x: Array) -> Array:
    """As `Kernels.relu`."""
    if not _fits(x):
        return numpy_set.relu(x)
    y = np.empty(x.shape, np.float32)
    _relu(np.ascontiguousarray(x).reshape(-1), y.reshape(-1))
    return y


@compiled
def _relu(x, y):  # type: ignore[no-untyped-def]
    for i in numba.prange(len(y)):
        y[i] = max(x[i], np.float32(0))


@compiled
def _sgd(w, g, v, lr, momentum, weight_decay, nesterov):  # type: ignore[no-untyped-def]
    for i in numba.prange(len(w)):
        step = lr * (g[i] + weight_decay * w[i])
        new = momentum * v[i] + step
        w[i] -= new + momentum * new - momentum * v[i] if nesterov else new
        v[i] = new


def sgd_update(w: Array, g: Array, v: Array, lr: float, momentum: float, weight_decay: float, nesterov: bool) -> None:
    """As `Kernels.sgd_update`."""
    if not _fits(w, g, v):
        numpy_set.sgd_update(w, g, v, lr, momentum, weight_decay, nesterov)
        return
    _sgd(w, g, v, np.float32(lr), np.float32(momentum), np.float32(weight_decay), nesterov)
