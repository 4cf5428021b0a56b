"""Pooling in pure NumPy: a window of k×k is k² strided views of the input, so k² whole-array operations.

`size` is the output's (height, width). The layer decides it: rounded up, the last windows may stick out of the padded
input, and what lies outside never wins and counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mgwfbp.kernels.types import Array, Pair


class Pooling:
    """The largest or the mean of each window, and their gradients. x is NHWC."""

    def max_pool(self, x: Array, kernel: Pair, stride: Pair, pad: Pair, size: Pair) -> Array:
        """The largest value of each window, `size` windows in height and width; what is outside of x never wins."""
        corners = _corners(_padded(x, kernel, stride, pad, size, -np.inf), kernel, stride, size)
        y = next(corners).copy()
        for values in corners:
            np.maximum(y, values, out=y)
        return y

    def max_pool_gradient(self, x: Array, y: Array, dy: Array, kernel: Pair, stride: Pair, pad: Pair) -> Array:
        """dL/dx: each window's gradient goes to the first of its largest values.

        After ReLU, ties (zeros) are the common case.
        """
        size = y.shape[1:3]
        padded = _padded(x, kernel, stride, pad, size, -np.inf)
        dx = np.zeros_like(padded)
        open_windows = np.ones(y.shape, bool)
        for values, target in zip(
            _corners(padded, kernel, stride, size), _corners(dx, kernel, stride, size), strict=True
        ):
            hit = values == y
            hit &= open_windows
            open_windows ^= hit
            target += dy * hit  # a multiplication by the mask is 12–18 times faster than np.where
        return _cropped(dx, x.shape, pad)

    def average_pool(self, x: Array, kernel: Pair, stride: Pair, pad: Pair, share: Array) -> Array:
        """The sum of each window times `share` (height', width', 1), one over the elements that it counts."""
        size = share.shape[:2]
        corners = _corners(_padded(x, kernel, stride, pad, size, 0.0), kernel, stride, size)
        y = next(corners).copy()
        for values in corners:
            y += values
        y *= share
        return y

    def average_pool_gradient(
        self, dy: Array, x_shape: tuple[int, ...], kernel: Pair, stride: Pair, pad: Pair, share: Array
    ) -> Array:
        """dL/dx of the mean: every element of a window gets its `share` of the window's gradient."""
        size = share.shape[:2]
        dx = np.zeros((x_shape[0], *_padded_size(x_shape, kernel, stride, pad, size), x_shape[3]), dy.dtype)
        part = dy * share
        for target in _corners(dx, kernel, stride, size):
            target += part
        return _cropped(dx, x_shape, pad)


def _padded_size(shape: tuple[int, ...], kernel: Pair, stride: Pair, pad: Pair, size: Pair) -> Pair:
    """Height and width of the input with its padding, and with what the last windows reach beyond that."""
    height, width = (max(shape[1 + i] + 2 * pad[i], (size[i] - 1) * stride[i] + kernel[i]) for i in (0, 1))
    return height, width


def _padded(x: Array, kernel: Pair, stride: Pair, pad: Pair, size: Pair, value: float) -> Array:
    height, width = _padded_size(x.shape, kernel, stride, pad, size)
    if (height, width) == x.shape[1:3]:
        return x
    after = (height - pad[0] - x.shape[1], width - pad[1] - x.shape[2])
    return np.pad(x, ((0, 0), (pad[0], after[0]), (pad[1], after[1]), (0, 0)), constant_values=value)


def _cropped(padded: Array, shape: tuple[int, ...], pad: Pair) -> Array:
    return padded[:, pad[0] : pad[0] + shape[1], pad[1] : pad[1] + shape[2]]


def _corners(x: Array, kernel: Pair, stride: Pair, size: Pair) -> Iterator[Array]:
    """For each place in the window (row-major) the view of `x` that holds the value at that place of every window."""
    for u in range(kernel[0]):
        for v in range(kernel[1]):
            yield x[:, u : u + size[0] * stride[0] : stride[0], v : v + size[1] * stride[1] : stride[1]]
