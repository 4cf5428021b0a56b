"""Convolution in pure NumPy: im2col in chunks of the batch, then one GEMM a chunk.

im2col lays every window out as a row, so that a convolution is (rows × window) @ (window × out channels). The column
buffer is kept near 1 MB: it is written and read while still in cache, which made it 1.1–1.4× PyTorch eager's time;
anything from a quarter to two megabytes measured the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mgwfbp.kernels.types import Array, Pair, output_size

COLUMN_BYTES = 1 << 20


class Convolutions:
    """The three primitives of a convolution. x is NHWC, the weight HWIO: (kernel height, width, in / groups, out)."""

    def conv2d(self, x: Array, weight: Array, bias: Array | None, stride: Pair, pad: Pair, groups: int) -> Array:
        """y[n,i,j,o] = Σ x[n, i·s+u−p, j·s+v−p, c] · weight[u,v,c,o] + bias[o]."""
        out = weight.shape[3]
        y = np.empty((len(x), *output_size(x.shape, weight.shape, stride, pad), out), x.dtype)
        for g_in, g_out in group_slices(weight.shape, groups):
            matrix = weight[..., g_out].reshape(-1, g_out.stop - g_out.start)
            for rows, columns in _im2col(x[..., g_in], weight.shape[:2], stride, pad):
                target = y[rows].reshape(-1, out)[:, g_out]
                if groups == 1:
                    np.matmul(columns, matrix, out=target)
                else:  # a strided target makes matmul leave BLAS
                    target[...] = columns @ matrix
        if bias is not None:
            y += bias
        return y

    def conv2d_weight_gradient(self, x: Array, dy: Array, out: Array, stride: Pair, pad: Pair, groups: int) -> None:
        """Write dL/dweight into `out`, of the weight's shape.

        dW = Σ over chunks of columnsᵀ @ dy: the columns are made again, which costs less than keeping them.
        """
        for g_in, g_out in group_slices(out.shape, groups):
            total = np.zeros((out.shape[0] * out.shape[1] * out.shape[2], g_out.stop - g_out.start), out.dtype)
            for rows, columns in _im2col(x[..., g_in], out.shape[:2], stride, pad):
                total += columns.T @ dy[rows].reshape(-1, dy.shape[3])[:, g_out]
            out[..., g_out] = total.reshape(*out.shape[:3], -1)

    def conv2d_input_gradient(
        self, dy: Array, weight: Array, x_shape: tuple[int, ...], stride: Pair, pad: Pair, groups: int
    ) -> Array:
        """dL/dx, of shape `x_shape`.

        At stride 1 it is a convolution of dy with the flipped, transposed weight; otherwise col2im.
        """
        kernel = weight.shape[:2]
        if stride == (1, 1) and pad[0] < kernel[0] and pad[1] < kernel[1]:
            flipped = [weight[::-1, ::-1, :, g_out].swapaxes(2, 3) for _, g_out in group_slices(weight.shape, groups)]
            full = (kernel[0] - 1 - pad[0], kernel[1] - 1 - pad[1])
            return Convolutions.conv2d(self, dy, np.concatenate(flipped, axis=3), None, (1, 1), full, groups)
        return _col2im(dy, weight, x_shape, stride, pad, groups)


def group_slices(w_shape: tuple[int, ...], groups: int) -> Iterator[tuple[slice, slice]]:
    """(input channels, output channels) of each group."""
    c, o = w_shape[2], w_shape[3] // groups
    return ((slice(g * c, (g + 1) * c), slice(g * o, (g + 1) * o)) for g in range(groups))


def _im2col(x: Array, kernel: Pair, stride: Pair, pad: Pair) -> Iterator[tuple[slice, Array]]:
    """For chunks of the batch: (which samples, their windows as rows of kernel height · kernel width · channels)."""
    height, width = output_size(x.shape, kernel, stride, pad)
    window = kernel[0] * kernel[1] * x.shape[3]
    if kernel == (1, 1) and pad == (0, 0):  # the windows are the pixels themselves
        yield slice(None), np.ascontiguousarray(x[:, :: stride[0], :: stride[1]]).reshape(-1, window)
        return
    chunk = max(1, min(len(x), COLUMN_BYTES // max(1, height * width * window * x.itemsize)))
    columns = np.empty((chunk, height, width, *kernel, x.shape[3]), x.dtype)
    padded = np.zeros((chunk, x.shape[1] + 2 * pad[0], x.shape[2] + 2 * pad[1], x.shape[3]), x.dtype)
    for start in range(0, len(x), chunk):
        many = min(chunk, len(x) - start)
        padded[:many, pad[0] : pad[0] + x.shape[1], pad[1] : pad[1] + x.shape[2]] = x[start : start + many]
        n, h, w, c = padded.strides
        windows = as_strided(padded, columns.shape, (n, h * stride[0], w * stride[1], h, w, c), writeable=False)
        np.copyto(columns[:many], windows[:many])
        yield slice(start, start + many), columns[:many].reshape(-1, window)


def _col2im(dy: Array, weight: Array, x_shape: tuple[int, ...], stride: Pair, pad: Pair, groups: int) -> Array:
    """Add each output's gradient, spread by the weight, back onto the window it came from."""
    (kh, kw), (height, width) = weight.shape[:2], dy.shape[1:3]
    padded_shape = (x_shape[1] + 2 * pad[0], x_shape[2] + 2 * pad[1])
    dx = np.zeros((x_shape[0], *padded_shape, x_shape[3]), dy.dtype)
    window = kh * kw * weight.shape[2]
    chunk = max(1, COLUMN_BYTES // max(1, height * width * window * dy.itemsize))
    for g_in, g_out in group_slices(weight.shape, groups):
        matrix = weight[..., g_out].reshape(window, -1).T
        for start in range(0, len(dy), chunk):
            rows = slice(start, min(start + chunk, len(dy)))
            columns = dy[rows].reshape(-1, dy.shape[3])[:, g_out] @ matrix
            columns = columns.reshape(-1, height, width, kh, kw, weight.shape[2])
            for u in range(kh):
                for v in range(kw):
                    target = dx[
                        rows, u : u + height * stride[0] : stride[0], v : v + width * stride[1] : stride[1], g_in
                    ]
                    target += columns[:, :, :, u, v]
    return dx[:, pad[0] : pad[0] + x_shape[1], pad[1] : pad[1] + x_shape[2]]
