"""Convolutions by oneDNN, but the weight gradient of wide ones: im2col by numba in chunks, and oneDNN's GEMM.

Without AVX-512, oneDNN's own weight gradient on NHWC arrays falls behind as the layers widen: 9 GFLOP/s at
2 × 224 × 224 × 64, where this reaches 60 (one thread of an AMD EPYC whose GEMM reaches 80). From 64 input channels on
this is faster. BLAS would do as well on one thread, but its threads and OpenMP's would spin against each other.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from mgwfbp.kernels.base import Kernels
from mgwfbp.kernels.fast import onednn
from mgwfbp.kernels.fast.float32 import float32
from mgwfbp.kernels.types import Array, Pair

CHANNELS = 64
COLUMN_BYTES = 2 << 20  # one to two megabytes measured the same; four were slower where images are large
ALIAS = 256  # rows of a multiple of so many elements fall on the same lines of the cache: up to half the speed
APART = 16  # so many elements between rows mend that

compiled: Any = numba.njit(cache=True, nogil=True, parallel=True)


class FastConvolutions(Kernels):
    """The three primitives of a convolution, a plan of oneDNN's for each shape; see `Kernels` for shapes."""

    @float32
    def conv2d(self, x: Array, weight: Array, bias: Array | None, stride: Pair, pad: Pair, groups: int) -> Array:
        plan = onednn.plan(x.shape, weight.shape, stride, pad, groups)
        y = np.empty(plan.y_shape, np.float32)
        arrays = {onednn.SRC: np.ascontiguousarray(x), onednn.WEIGHTS: np.ascontiguousarray(weight), onednn.DST: y}
        if bias is not None:
            arrays[onednn.BIAS] = bias
        plan.forward(bias is not None).run(arrays)
        return y

    @float32
    def conv2d_input_gradient(
        self, dy: Array, weight: Array, x_shape: tuple[int, ...], stride: Pair, pad: Pair, groups: int
    ) -> Array:
        dx = np.empty(x_shape, np.float32)
        arrays = {onednn.DIFF_DST: np.ascontiguousarray(dy), onednn.WEIGHTS: np.ascontiguousarray(weight)}
        primitive = onednn.plan(x_shape, weight.shape, stride, pad, groups).input_gradient()
        primitive.run({**arrays, onednn.DIFF_SRC: dx})
        return dx

    @float32
    def conv2d_weight_gradient(self, x: Array, dy: Array, out: Array, stride: Pair, pad: Pair, groups: int) -> None:
        if groups == 1 and x.shape[3] >= CHANNELS:
            _wide_weight_gradient(x, dy, out, stride, pad)
            return
        arrays = {onednn.SRC: np.ascontiguousarray(x), onednn.DIFF_DST: np.ascontiguousarray(dy)}
        primitive = onednn.plan(x.shape, out.shape, stride, pad, groups).weight_gradient()
        primitive.run({**arrays, onednn.DIFF_WEIGHTS: out})


def _wide_weight_gradient(x: Array, dy: Array, out: Array, stride: Pair, pad: Pair) -> None:
    """dW into `out`, C-contiguous, by im2col in chunks and GEMM."""
    kernel, (n, height, width, channels) = out.shape[:2], dy.shape
    matrix, dy_rows = out.reshape(-1, channels), _apart(dy.reshape(-1, channels))
    if kernel == (1, 1) and pad == (0, 0):  # the windows are the pixels themselves
        pixels = np.ascontiguousarray(x[:, :: stride[0], :: stride[1]][:, :height, :width])
        onednn.gemm(_apart(pixels.reshape(-1, len(matrix))).T, dy_rows, matrix)
        return
    x, chunk = np.ascontiguousarray(x), max(1, min(n * height, COLUMN_BYTES // (width * len(matrix) * 4)))
    columns = _empty_apart(chunk * width, len(matrix))
    for first in range(0, n * height, chunk):
        rows = slice(first * width, min(first + chunk, n * height) * width)
        part = columns[: rows.stop - rows.start]
        _im2col(x, first, kernel, stride, pad, height, width, part)
        onednn.gemm(part.T, dy_rows[rows], matrix, add=first > 0)


def _empty_apart(rows: int, length: int) -> Array:
    """An array of that shape, whose rows lie apart where they would fall on the same lines of the cache."""
    return np.empty((rows, length + (APART if length % ALIAS == 0 else 0)), np.float32)[:, :length]


def _apart(matrix: Array) -> Array:
    """`matrix`, copied if its rows would fall on the same lines of the cache."""
    if matrix.shape[1] % ALIAS:
        return np.ascontiguousarray(matrix)
    copy = _empty_apart(*matrix.shape)
    copy[...] = matrix
    return copy


@compiled
def _im2col(x, first, kernel, stride, pad, height, width, columns):  # type: ignore[no-untyped-def]
    """Windows of the output rows from `first` (counted over the whole batch) as rows of `columns`."""
    _, x_height, x_width, channels = x.shape
    source, run = x.reshape(-1), kernel[1] * channels
    for r in numba.prange(len(columns) // width):
        n, i = divmod(first + r, height)
        for j in range(width):
            target, at = columns[r * width + j], 0
            left = j * stride[1] - pad[1]
            start, end = max(0, -left) * channels, min(kernel[1], x_width - left) * channels
            for u in range(kernel[0]):
                row = i * stride[0] + u - pad[0]
                window = target[at : at + run]
                at += run
                if not 0 <= row < x_height or end <= start:
                    window[:] = 0
                    continue
                offset = ((n * x_height + row) * x_width + left) * channels
                pixels, inside = source[offset + start : offset + end], window[start:end]
                window[:start] = 0
                for k in range(len(inside)):
                    inside[k] = pixels[k]
                window[end:] = 0
