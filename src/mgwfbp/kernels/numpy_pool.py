"""Pooling in pure NumPy: a window of k×k is k² strided views of the input, so k² whole-array operations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mgwfbp.kernels import Array, Pair, positions


def max_pool(x: Array, kernel: Pair, stride: Pair, pad: Pair) -> Array:
    """The largest value of each window."""
    corners = _corners(_padded(x, pad, -np.inf), kernel, stride)
    y = next(corners).copy()
    for values in corners:
        np.maximum(y, values, out=y)
    return y


def max_pool_gradient(x: Array, y: Array, dy: Array, kernel: Pair, stride: Pair, pad: Pair) -> Array:
    """Route each window's gradient to the first of its largest values: after ReLU, ties (zeros) are the common case."""
    padded = _padded(x, pad, -np.inf)
    dx = np.zeros_like(padded)
    open_windows = np.ones(y.shape, bool)
    for values, target in zip(_corners(padded, kernel, stride), _corners(dx, kernel, stride), strict=True):
        hit = values == y
        hit &= open_windows
        open_windows ^= hit
        target += dy * hit  # a multiplication by the mask is 12–18 times faster than np.where
    return _cropped(dx, x.shape, pad)


def average_pool(x: Array, kernel: Pair, stride: Pair, pad: Pair) -> Array:
    """The mean of each window; padding counts as zeros."""
    corners = _corners(_padded(x, pad, 0.0), kernel, stride)
    y = next(corners).copy()
    for values in corners:
        y += values
    y *= 1.0 / (kernel[0] * kernel[1])
    return y


def average_pool_gradient(dy: Array, x_shape: tuple[int, ...], kernel: Pair, stride: Pair, pad: Pair) -> Array:
    """Every element of a window gets an equal share of its gradient."""
    dx = np.zeros((x_shape[0], x_shape[1] + 2 * pad[0], x_shape[2] + 2 * pad[1], x_shape[3]), dy.dtype)
    share = dy * (1.0 / (kernel[0] * kernel[1]))
    for target in _corners(dx, kernel, stride):
        target += share
    return _cropped(dx, x_shape, pad)


def _padded(x: Array, pad: Pair, value: float) -> Array:
    if pad == (0, 0):
        return x
    return np.pad(x, ((0, 0), (pad[0], pad[0]), (pad[1], pad[1]), (0, 0)), constant_values=value)


def _cropped(padded: Array, shape: tuple[int, ...], pad: Pair) -> Array:
    return padded[:, pad[0] : pad[0] + shape[1], pad[1] : pad[1] + shape[2]]


def _corners(x: Array, kernel: Pair, stride: Pair) -> Iterator[Array]:
    """For each place in the window (row-major) the view of `x` that holds the value at that place of every window."""
    height, width = (positions(x.shape[1 + i], kernel[i], stride[i], 0) for i in (0, 1))
    for u in range(kernel[0]):
        for v in range(kernel[1]):
            yield x[:, u : u + height * stride[0] : stride[0], v : v + width * stride[1] : stride[1]]
