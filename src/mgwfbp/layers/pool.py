"""Pooling: the largest or the mean of each window."""

from __future__ import annotations

from mgwfbp.kernels import Array, Pair
from mgwfbp.layers.layer import Layer, Shape, Step, output_size, pair


class _Pool2d(Layer):
    """A window of `kernel` moved by `stride` (the kernel's size by default) over an input padded by `pad`."""

    def __init__(self, kernel: int | Pair, *, stride: int | Pair | None = None, pad: int | Pair = 0) -> None:
        super().__init__()
        self.kernel = pair(kernel)
        self.stride = self.kernel if stride is None else pair(stride)
        self.pad = pair(pad)
        least = min(*self.kernel, *self.stride, *(pad + 1 for pad in self.pad))
        self.need(least >= 1, "sizes and strides of at least 1, padding of at least 0", (kernel, stride, pad))

    def connect(self, *shapes: Shape) -> Shape:
        """(height, width, channels) → (height', width', channels)."""
        (shape,) = shapes
        size = output_size(self, shape, self.kernel, self.stride, self.pad)
        half = all(2 * pad <= kernel for pad, kernel in zip(self.pad, self.kernel, strict=True))
        self.need(half, f"padding of at most half the window {self.kernel}", self.pad)
        return (*size, shape[2])


class MaxPool2d(_Pool2d):
    """y = the largest x in each window; x is (batch, height, width, channels)."""

    def forward(self, x: Array, step: Step) -> Array:
        """The maximum of each window."""
        self.x = x
        self.y = self.kernels.max_pool(x, self.kernel, self.stride, self.pad)
        return self.y

    def backward_input(self, dy: Array) -> Array:
        """The gradient goes to the place of the (first) maximum."""
        return self.kernels.max_pool_gradient(self.x, self.y, dy, self.kernel, self.stride, self.pad)


class AvgPool2d(_Pool2d):
    """y = the mean of each window, zero padding included (torch's default)."""

    def forward(self, x: Array, step: Step) -> Array:
        """The mean of each window."""
        self.x_shape = x.shape
        return self.kernels.average_pool(x, self.kernel, self.stride, self.pad)

    def backward_input(self, dy: Array) -> Array:
        """The gradient is shared equally by the window."""
        return self.kernels.average_pool_gradient(dy, self.x_shape, self.kernel, self.stride, self.pad)


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
