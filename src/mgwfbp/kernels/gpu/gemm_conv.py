"""Convolution on the GPU by matrix products: im2col in chunks of the batch, then cuBLAS.

It stands in where cuDNN is missing or has no plan for a shape, and does the 1×1 convolutions everywhere: in NHWC those
are a plain product of the pixels with the weight, and need no other order of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mgwfbp.kernels.base import Kernels, overrides
from mgwfbp.kernels.numpy.conv import group_slices
from mgwfbp.kernels.types import Array, Pair, output_size

COLUMN_BYTES = 256 << 20  # of the buffer for the columns: large products, and small beside a card's memory

Launch = Callable[..., None]  # (kernel, dtype, width, *arguments, rows=1), as gpu/launch.py


def pixels_are_windows(w_shape: tuple[int, ...], stride: Pair, pad: Pair) -> bool:
    """Whether every window is one pixel of x, and every pixel a window."""
    return (*w_shape[:2], *stride, *pad) == (1, 1, 1, 1, 0, 0)


class GemmConvolutions(Kernels):
    """The three convolution primitives by products, for arrays of the module `xp` and kernels started by `launch`."""

    def __init__(self, xp: Any, launch: Launch) -> None:
        self.xp, self.launch = xp, launch

    @overrides
    def conv2d(self, x: Array, weight: Array, bias: Array | None, stride: Pair, pad: Pair, groups: int) -> Array:
        # y = columns(x) @ weight, then the bias.
        y_size = output_size(x.shape, weight.shape, stride, pad)
        y = self.xp.empty((len(x), *y_size, weight.shape[3]), x.dtype)
        for g_in, g_out in group_slices(weight.shape, groups):
            matrix = self.xp.ascontiguousarray(weight[..., g_out]).reshape(-1, g_out.stop - g_out.start)
            for rows, columns in self._columns(x, g_in, weight.shape, y_size, stride, pad):
                self._product(columns, matrix, y[rows].reshape(-1, y.shape[3])[:, g_out])
        if bias is not None:
            y += bias
        return y

    @overrides
    def conv2d_weight_gradient(self, x: Array, dy: Array, out: Array, stride: Pair, pad: Pair, groups: int) -> None:
        # dW = Σ over the chunks of columnsᵀ @ dy.
        if not len(x):
            out[...] = 0
        dy, matrix = self.xp.ascontiguousarray(dy), out.reshape(-1, out.shape[3])
        for g_in, g_out in group_slices(out.shape, groups):
            for rows, columns in self._columns(x, g_in, out.shape, dy.shape[1:3], stride, pad):
                dy_rows = dy[rows].reshape(-1, dy.shape[3])[:, g_out]
                if rows.start == 0:
                    self._product(columns.T, dy_rows, matrix[:, g_out])
                else:
                    matrix[:, g_out] += columns.T @ dy_rows

    @overrides
    def conv2d_input_gradient(
        self, dy: Array, weight: Array, x_shape: tuple[int, ...], stride: Pair, pad: Pair, groups: int
    ) -> Array:
        # dX: dy @ weightᵀ gives every window's gradient, which col2im adds up.
        dy, dx = self.xp.ascontiguousarray(dy), self.xp.empty(x_shape, dy.dtype)
        kernel, y_size = weight.shape[:2], dy.shape[1:3]
        for g_in, g_out in group_slices(weight.shape, groups):
            matrix = self.xp.ascontiguousarray(weight[..., g_out]).reshape(-1, g_out.stop - g_out.start).T
            if groups == 1 and pixels_are_windows(weight.shape, stride, pad):
                self._product(dy.reshape(-1, dy.shape[3]), matrix, dx.reshape(-1, x_shape[3]))
                continue
            channels = g_in.stop - g_in.start
            for rows in _chunks(len(dy), y_size[0] * y_size[1] * len(matrix.T) * dy.itemsize):
                columns = dy[rows].reshape(-1, dy.shape[3])[:, g_out] @ matrix
                sizes = (*dx[rows].shape, g_in.start, channels, *y_size, *kernel, *stride, *pad)
                width, many = x_shape[2] * channels, (rows.stop - rows.start) * x_shape[1]
                self.launch("col2im", dy.dtype, width, self.xp.ascontiguousarray(columns), dx[rows], *sizes, rows=many)
        return dx

    def _columns(
        self, x: Array, g_in: slice, w_shape: tuple[int, ...], y_size: Pair, stride: Pair, pad: Pair
    ) -> Iterator[tuple[slice, Array]]:
        """For chunks of the batch: (which samples, their windows of the channels `g_in` as rows), in one buffer."""
        x, channels = self.xp.ascontiguousarray(x), w_shape[2]
        window = w_shape[0] * w_shape[1] * channels
        if channels == x.shape[3] and pixels_are_windows(w_shape, stride, pad):
            yield slice(0, len(x)), x.reshape(-1, window)
            return
        buffer = None
        for rows in _chunks(len(x), y_size[0] * y_size[1] * window * x.itemsize):
            many = rows.stop - rows.start
            if buffer is None:
                buffer = self.xp.empty((many * y_size[0] * y_size[1], window), x.dtype)
            columns = buffer[: many * y_size[0] * y_size[1]]
            sizes = (*x[rows].shape, g_in.start, channels, *y_size, *w_shape[:2], *stride, *pad)
            self.launch("im2col", x.dtype, y_size[1] * window, x[rows], columns, *sizes, rows=many * y_size[0])
            yield rows, columns

    def _product(self, a: Array, b: Array, out: Array) -> None:
        """out = a @ b; `out` may be a part of the columns of a matrix."""
        if out.flags.c_contiguous:
            self.xp.matmul(a, b, out=out)
        else:
            out[...] = a @ b


def _chunks(samples: int, nbytes: int) -> Iterator[slice]:
    """Slices of the batch whose columns, `nbytes` a sample, fit into COLUMN_BYTES; at least one sample each."""
    many = max(1, COLUMN_BYTES // max(1, nbytes))
    return (slice(start, min(start + many, samples)) for start in range(0, samples, many))
