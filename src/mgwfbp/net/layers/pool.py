"""Pooling: the largest or the mean of each window."""

from __future__ import annotations

import numpy as np

from mgwfbp.kernels import Array, Pair, positions
from mgwfbp.net.layers.layer import Layer, Shape, Step, output_size, pair


class _Pool2d(Layer):
    """A window of `kernel` moved by `stride` (the kernel's size by default) over an input padded by `pad`.

    With `ceil` the number of windows is rounded up, as Caffe does: the last one may stick out, but it starts inside of
    the input or its padding before.
    """

    def __init__(
        self, kernel: int | Pair, *, stride: int | Pair | None = None, pad: int | Pair = 0, ceil: bool = False
    ) -> None:
        super().__init__()
        self.kernel = pair(kernel)
        self.stride = self.kernel if stride is None else pair(stride)
        self.pad, self.ceil = pair(pad), ceil
        least = min(*self.kernel, *self.stride, *(pad + 1 for pad in self.pad))
        self.need(least >= 1, "sizes and strides of at least 1, padding of at least 0", (kernel, stride, pad))

    def connect(self, *shapes: Shape) -> Shape:
        """(height, width, channels) → (height', width', channels)."""
        (shape,) = shapes
        output_size(self, shape, self.kernel, self.stride, self.pad)
        half = all(2 * pad <= kernel for pad, kernel in zip(self.pad, self.kernel, strict=True))
        self.need(half, f"padding of at most half the window {self.kernel}", self.pad)
        height, width = (self._windows(shape[axis], axis) for axis in (0, 1))
        self.size = (height, width)
        return (height, width, shape[2])

    def _windows(self, size: int, axis: int) -> int:
        """How many windows there are along `axis`."""
        kernel, stride, pad = self.kernel[axis], self.stride[axis], self.pad[axis]
        windows = positions(size, kernel, stride, pad)
        sticks_out = self.ceil and (size + 2 * pad - kernel) % stride and windows * stride < size + pad
        return windows + bool(sticks_out)


class MaxPool2d(_Pool2d):
    """y = the largest x in each window; x is (batch, height, width, channels)."""

    def forward(self, x: Array, step: Step) -> Array:
        """The maximum of each window."""
        self.x = x
        self.y = self.kernels.max_pool(x, self.kernel, self.stride, self.pad, self.size)
        return self.y

    def backward_input(self, dy: Array) -> Array:
        """The gradient goes to the place of the (first) maximum."""
        return self.kernels.max_pool_gradient(self.x, self.y, dy, self.kernel, self.stride, self.pad)


class AvgPool2d(_Pool2d):
    """y = the mean of each window; x is (batch, height, width, channels).

    Zero padding counts as elements, as in Caffe and as torch's default, unless `include_pad` is false. What sticks out
    beyond the padding (with `ceil`) never counts.
    """

    def __init__(
        self,
        kernel: int | Pair,
        *,
        stride: int | Pair | None = None,
        pad: int | Pair = 0,
        ceil: bool = False,
        include_pad: bool = True,
    ) -> None:
        super().__init__(kernel, stride=stride, pad=pad, ceil=ceil)
        self.include_pad = include_pad

    def connect(self, *shapes: Shape) -> Shape:
        """(height, width, channels) → (height', width', channels)."""
        out = super().connect(*shapes)
        counts = np.outer(*(self._counts(shapes[0][axis], axis) for axis in (0, 1)))
        self.shares = (1.0 / counts)[..., None]
        self.share: Array = None
        return out

    def _counts(self, size: int, axis: int) -> np.ndarray:
        """For each window along `axis` how many elements it counts."""
        pad = self.pad[axis]
        first, last = (0, size + 2 * pad) if self.include_pad else (pad, size + pad)
        starts = np.arange(self.size[axis]) * self.stride[axis]
        return np.minimum(starts + self.kernel[axis], last) - np.maximum(starts, first)

    def forward(self, x: Array, step: Step) -> Array:
        """The mean of each window."""
        self.x_shape = x.shape
        if self.share is None or self.share.dtype != x.dtype:
            self.share = self.kernels.xp.asarray(self.shares, x.dtype)
        return self.kernels.average_pool(x, self.kernel, self.stride, self.pad, self.share)

    def backward_input(self, dy: Array) -> Array:
        """The gradient is shared equally by what the window counts."""
        return self.kernels.average_pool_gradient(dy, self.x_shape, self.kernel, self.stride, self.pad, self.share)


class GlobalAvgPool(Layer):
    """y = the mean over height and width: (batch, height, width, channels) → (batch, channels)."""

    def connect(self, *shapes: Shape) -> Shape:
        """(height, width, channels) → (channels,)."""
        (shape,) = shapes
        self.need(len(shape) == 3, "an input of (height, width, channels)", shape)
        return (shape[2],)

    def forward(self, x: Array, step: Step) -> Array:
        """The mean over height and width."""
        self.x_shape = x.shape
        return x.mean(axis=(1, 2))

    def backward_input(self, dy: Array) -> Array:
        """The gradient is shared equally by all places."""
        _, height, width, _ = self.x_shape
        share = dy * (1.0 / (height * width))
        return self.kernels.xp.broadcast_to(share[:, None, None, :], self.x_shape)
