"""Pooling and LRN by numba: one pass over the windows, the inner loop over the channels, threads over rows or images.

What lies outside of the input never wins and counts nothing.
"""

from __future__ import annotations

import numba
import numpy as np

from mgwfbp.kernels.base import Kernels
from mgwfbp.kernels.fast.float32 import compiled, float32
from mgwfbp.kernels.types import Array, Pair

CAFFE_BETA = 0.75  # every net that has LRN has this; s^−0.75 by two square roots is vectorised, a power is not


class FastPooling(Kernels):
    """Pooling, and LRN with Caffe's beta; see `Kernels` for shapes."""

    @float32
    def max_pool(self, x: Array, kernel: Pair, stride: Pair, pad: Pair, size: Pair) -> Array:
        y = np.empty((len(x), *size, x.shape[3]), np.float32)
        _max_pool(np.ascontiguousarray(x), kernel, stride, pad, y)
        return y

    @float32
    def max_pool_gradient(self, x: Array, y: Array, dy: Array, kernel: Pair, stride: Pair, pad: Pair) -> Array:
        dx = np.zeros(x.shape, np.float32)
        _max_pool_gradient(np.ascontiguousarray(x), y, np.ascontiguousarray(dy), kernel, stride, pad, dx)
        return dx

    @float32
    def average_pool(self, x: Array, kernel: Pair, stride: Pair, pad: Pair, share: Array) -> Array:
        y = np.empty((len(x), *share.shape[:2], x.shape[3]), np.float32)
        _average_pool(np.ascontiguousarray(x), kernel, stride, pad, share[..., 0], y)
        return y

    @float32
    def average_pool_gradient(
        self, dy: Array, x_shape: tuple[int, ...], kernel: Pair, stride: Pair, pad: Pair, share: Array
    ) -> Array:
        dx = np.zeros(x_shape, np.float32)
        _average_pool_gradient(np.ascontiguousarray(dy), kernel, stride, pad, share[..., 0], dx)
        return dx

    @float32
    def lrn(self, x: Array, size: int, alpha: float, beta: float, k: float) -> tuple[Array, Array]:
        if beta != CAFFE_BETA:
            return Kernels.lrn(self, x, size, alpha, beta, k)
        y, scale, c = np.empty(x.shape, np.float32), np.empty(x.shape, np.float32), x.shape[-1]
        rows = (np.ascontiguousarray(x).reshape(-1, c), y.reshape(-1, c), scale.reshape(-1, c))
        _lrn(rows[0], size // 2, np.float32(alpha / size), np.float32(k), *rows[1:])
        return y, scale

    @float32
    def lrn_gradient(self, x: Array, y: Array, scale: Array, dy: Array, size: int, alpha: float, beta: float) -> Array:
        if beta != CAFFE_BETA:
            return Kernels.lrn_gradient(self, x, y, scale, dy, size, alpha, beta)
        dx, c = np.empty(x.shape, np.float32), x.shape[-1]
        rows = (np.ascontiguousarray(array).reshape(-1, c) for array in (x, y, scale, dy))
        _lrn_gradient(*rows, size // 2, np.float32(2 * alpha * CAFFE_BETA / size), dx.reshape(-1, c))
        return dx


@compiled
def _max_pool(x, kernel, stride, pad, y):  # type: ignore[no-untyped-def]
    images, height, width, channels = y.shape
    for r in numba.prange(images * height):
        n, i = divmod(np.int64(r), height)  # numba's r is unsigned, and mixed with signed it turns to float
        top, bottom = max(0, i * stride[0] - pad[0]), min(x.shape[1], i * stride[0] - pad[0] + kernel[0])
        for j in range(width):
            left, right = max(0, j * stride[1] - pad[1]), min(x.shape[2], j * stride[1] - pad[1] + kernel[1])
            for c in range(channels):
                y[n, i, j, c] = -np.inf
            for u in range(top, bottom):
                for v in range(left, right):
                    for c in range(channels):
                        value = x[n, u, v, c]
                        if value > y[n, i, j, c] or value != value:  # NaN wins, as in NumPy, and stays
                            y[n, i, j, c] = value


@compiled
def _max_pool_gradient(x, y, dy, kernel, stride, pad, dx):  # type: ignore[no-untyped-def]
    images, height, width, channels = y.shape
    for n in numba.prange(images):  # windows overlap within an image only
        left_over = np.empty(channels, np.float32)
        for i in range(height):
            top, bottom = max(0, i * stride[0] - pad[0]), min(x.shape[1], i * stride[0] - pad[0] + kernel[0])
            for j in range(width):
                left, right = max(0, j * stride[1] - pad[1]), min(x.shape[2], j * stride[1] - pad[1] + kernel[1])
                for c in range(channels):
                    left_over[c] = dy[n, i, j, c]
                for u in range(top, bottom):
                    for v in range(left, right):
                        for c in range(channels):  # what the first of the largest takes is not left for the others
                            hit = left_over[c] if x[n, u, v, c] == y[n, i, j, c] else np.float32(0)
                            dx[n, u, v, c] += hit
                            left_over[c] -= hit


@compiled
def _average_pool(x, kernel, stride, pad, share, y):  # type: ignore[no-untyped-def]
    images, height, width, channels = y.shape
    for r in numba.prange(images * height):
        n, i = divmod(np.int64(r), height)  # numba's r is unsigned, and mixed with signed it turns to float
        top, bottom = max(0, i * stride[0] - pad[0]), min(x.shape[1], i * stride[0] - pad[0] + kernel[0])
        for j in range(width):
            left, right = max(0, j * stride[1] - pad[1]), min(x.shape[2], j * stride[1] - pad[1] + kernel[1])
            for c in range(channels):
                y[n, i, j, c] = 0
            for u in range(top, bottom):
                for v in range(left, right):
                    for c in range(channels):
                        y[n, i, j, c] += x[n, u, v, c]
            for c in range(channels):
                y[n, i, j, c] *= share[i, j]


@compiled
def _average_pool_gradient(dy, kernel, stride, pad, share, dx):  # type: ignore[no-untyped-def]
    images, height, width, channels = dy.shape
    for n in numba.prange(images):
        for i in range(height):
            top, bottom = max(0, i * stride[0] - pad[0]), min(dx.shape[1], i * stride[0] - pad[0] + kernel[0])
            for j in range(width):
                left, right = max(0, j * stride[1] - pad[1]), min(dx.shape[2], j * stride[1] - pad[1] + kernel[1])
                for u in range(top, bottom):
                    for v in range(left, right):
                        for c in range(channels):
                            dx[n, u, v, c] += dy[n, i, j, c] * share[i, j]


@compiled
def _lrn(x, half, factor, k, y, scale):  # type: ignore[no-untyped-def]
    rows, channels = x.shape
    for r in numba.prange(rows):
        square = np.zeros(channels + 2 * half, np.float32)
        for c in range(channels):
            square[half + c] = x[r, c] * x[r, c]
        for c in range(channels):
            scale[r, c] = square[c]
        for d in range(1, 2 * half + 1):
            for c in range(channels):
                scale[r, c] += square[c + d]
        for c in range(channels):
            s = k + factor * scale[r, c]
            root = np.sqrt(s)
            scale[r, c] = s
            y[r, c] = x[r, c] / (root * np.sqrt(root))


@compiled
def _lrn_gradient(x, y, scale, dy, half, factor, dx):  # type: ignore[no-untyped-def]
    rows, channels = x.shape
    for r in numba.prange(rows):
        ratio = np.zeros(channels + 2 * half, np.float32)
        for c in range(channels):
            ratio[half + c] = dy[r, c] * y[r, c] / scale[r, c]
        total = np.zeros(channels, np.float32)
        for d in range(2 * half + 1):
            for c in range(channels):
                total[c] += ratio[c + d]
        for c in range(channels):
            root = np.sqrt(scale[r, c])
            dx[r, c] = dy[r, c] / (root * np.sqrt(root)) - factor * x[r, c] * total[c]
