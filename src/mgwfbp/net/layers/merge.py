"""Layers where branches of the graph meet (Add, Concat), and ResNet's shortcut without parameters."""

from __future__ import annotations

from mgwfbp.kernels import Array
from mgwfbp.net.layers.layer import Layer, Shape, Step
from mgwfbp.net.layers.norm import BatchNorm2d


class Add(Layer):
    """y = x₁ + x₂ + …: the end of a residual block. All inputs have one shape."""

    relu = False  # set where a ReLU follows and was fused into this layer (net/fuse.py)
    norm: BatchNorm2d | None = None  # a BatchNorm that leaves its own pass to this layer, as input `norm_place`
    norm_place = 0

    def connect(self, *shapes: Shape) -> Shape:
        """Equal shapes → the same shape."""
        self.need(len(shapes) >= 2 and len(set(shapes)) == 1, "two or more inputs of equal shape", list(shapes))
        self.inputs = len(shapes)
        return shapes[0]

    def forward(self, x: Array, step: Step) -> Array:
        """The sum of the inputs in the list `x`."""
        if self.norm is not None:
            x = [value for place, value in enumerate(x) if place != self.norm_place]
        y = x[0]
        for place, more in enumerate(x[1:], start=2):
            y = self.kernels.add(y, more, self.relu and self.norm is None and place == len(x))
        self.y = y if self.norm is None else self.norm.normalised(y, self.relu)
        return self.y

    def backward_input(self, dy: Array) -> list[Array]:
        """dy, to every input."""
        return [self.kernels.relu_gradient(self.y, dy) if self.relu else dy] * self.inputs


class Concat(Layer):
    """The inputs side by side along the channels (the last axis). All other axes agree."""

    def connect(self, *shapes: Shape) -> Shape:
        """(…, c₁), (…, c₂), … → (…, c₁ + c₂ + …)."""
        self.need(
            len(shapes) >= 2 and len({shape[:-1] for shape in shapes}) == 1,
            "two or more inputs that differ in their channels only",
            list(shapes),
        )
        ends, end = [], 0
        for shape in shapes:
            ends.append(slice(end, end + shape[-1]))
            end += shape[-1]
        self.parts = ends
        return (*shapes[0][:-1], end)

    def forward(self, x: Array, step: Step) -> Array:
        """Concatenate the inputs in the list `x`."""
        return self.kernels.xp.concatenate(x, axis=-1)

    def backward_input(self, dy: Array) -> list[Array]:
        """Each input gets its own channels of dy."""
        return [dy[..., part] for part in self.parts]


class PadShortcut(Layer):
    """ResNet's shortcut "option A" (He et al. 2016): every `stride`-th pixel, and zeros for the added channels.

    (height, width, c) → (⌈height/stride⌉, ⌈width/stride⌉, channels), the input's channels in the middle, as in the
    common CIFAR implementations.
    """

    def __init__(self, channels: int, *, stride: int = 2) -> None:
        super().__init__()
        self.channels, self.stride = channels, stride

    def connect(self, *shapes: Shape) -> Shape:
        """(height, width, c) → (height', width', channels)."""
        (shape,) = shapes
        self.need(len(shape) == 3 and shape[2] <= self.channels, f"at most {self.channels} channels", shape)
        before = (self.channels - shape[2]) // 2
        self.middle = slice(before, before + shape[2])
        return (-(-shape[0] // self.stride), -(-shape[1] // self.stride), self.channels)

    def forward(self, x: Array, step: Step) -> Array:
        """Subsample and pad."""
        self.x_shape = x.shape
        part = x[:, :: self.stride, :: self.stride]
        y = self.kernels.xp.zeros((*part.shape[:3], self.channels), x.dtype)
        y[..., self.middle] = part
        return y

    def backward_input(self, dy: Array) -> Array:
        """The gradient of the pixels and channels that were kept; zero elsewhere."""
        dx = self.kernels.xp.zeros(self.x_shape, dy.dtype)
        dx[:, :: self.stride, :: self.stride] = dy[..., self.middle]
        return dx
