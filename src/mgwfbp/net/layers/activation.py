"""Layers that change each element, or only the shape: ReLU, PReLU, Sigmoid, Tanh, Softmax, Dropout, Flatten."""

from __future__ import annotations

from math import prod

import numpy as np

from mgwfbp.kernels import Array
from mgwfbp.net.layers.initial import constant
from mgwfbp.net.layers.layer import Layer, Shape, Step, Tensor


class ReLU(Layer):
    """y = max(x, 0)."""

    fused = False  # set where the layer before does this one's work (net/fuse.py)

    def forward(self, x: Array, step: Step) -> Array:
        """max(x, 0)."""
        self.y = x if self.fused else self.kernels.relu(x)
        return self.y

    def backward_input(self, dy: Array) -> Array:
        """dx = dy where y > 0; at x = 0 the derivative is taken as 0."""
        return dy if self.fused else self.kernels.relu_gradient(self.y, dy)


class PReLU(Layer):
    """y = x where x > 0, else slope · x, with a trained slope for each channel (He et al. 2015); it starts at 0.25."""

    slope: Array
    d_slope: Array

    def connect(self, *shapes: Shape) -> Shape:
        """The shape stays; one slope a channel (the last axis)."""
        self.parameters = [Tensor("slope", shapes[0][-1:], constant(0.25))]
        return shapes[0]

    def forward(self, x: Array, step: Step) -> Array:
        """max(x, 0) + slope · min(x, 0)."""
        self.negative = self.kernels.xp.minimum(x, 0)
        return self.kernels.relu(x) + self.slope * self.negative

    def backward_parameters(self, dy: Array) -> None:
        """dslope = Σ dy · min(x, 0) over all axes but the channels."""
        self.d_slope[...] = self.kernels.channel_sums(dy * self.negative)

    def backward_input(self, dy: Array) -> Array:
        """dx = dy where x ≥ 0, else slope · dy."""
        below = self.negative < 0
        return dy * ~below + dy * below * self.slope


class Sigmoid(Layer):
    """y = 1 / (1 + exp(−x)), written with tanh, which does not overflow."""

    def forward(self, x: Array, step: Step) -> Array:
        """½ + ½ · tanh(x/2)."""
        self.y = 0.5 + 0.5 * self.kernels.xp.tanh(0.5 * x)
        return self.y

    def backward_input(self, dy: Array) -> Array:
        """dx = dy · y · (1 − y)."""
        return dy * self.y * (1 - self.y)


class Tanh(Layer):
    """y = tanh(x)."""

    def forward(self, x: Array, step: Step) -> Array:
        """tanh(x)."""
        self.y = self.kernels.xp.tanh(x)
        return self.y

    def backward_input(self, dy: Array) -> Array:
        """dx = dy · (1 − y²)."""
        return dy * (1 - self.y * self.y)


class Softmax(Layer):
    """y = exp(x) / Σ exp(x) over the last axis. (The loss has its own: this is for nets that need one inside.)"""

    def forward(self, x: Array, step: Step) -> Array:
        """Subtract the maximum first, so that nothing overflows."""
        self.y = self.kernels.xp.exp(x - x.max(axis=-1, keepdims=True))
        self.y /= self.y.sum(axis=-1, keepdims=True)
        return self.y

    def backward_input(self, dy: Array) -> Array:
        """dx = y · (dy − Σ dy · y)."""
        return self.y * (dy - (dy * self.y).sum(axis=-1, keepdims=True))


class Dropout(Layer):
    """y = x · mask / (1 − rate) in training, y = x otherwise (Srivastava et al. 2014).

    The mask of a sample depends on the seed, the layer, the iteration and the sample's place in the *global* batch, so
    it is the same at any number of ranks.
    """

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        self.need(0 <= rate < 1, "a rate of at least 0 and below 1", rate)
        self.rate = rate

    def forward(self, x: Array, step: Step) -> Array:
        """Zero a share `rate` of the elements and scale the others up."""
        if not step.training or self.rate == 0:
            self.mask = None
            return x
        # To a GPU go the truth values, a quarter of the bytes of the products.
        self.mask = self.kernels.xp.asarray(self._draw(x.shape, step)) * x.dtype.type(1 / (1 - self.rate))
        return x * self.mask

    def _draw(self, shape: Shape, step: Step) -> np.ndarray:
        """Keep (True) or drop. Philox counts, so a rank skips to its first row without drawing the rows before."""
        elements = prod(shape[1:])
        padded = -(-elements // 8) * 8  # one count of Philox is 8 float32
        stream = np.random.Philox(key=[step.seed, self.index], counter=[0, 0, step.iteration, 0])
        stream.advance(step.first_row * padded // 8)
        draws = np.random.Generator(stream).random((shape[0], padded), np.float32)
        return (draws[:, :elements] >= self.rate).reshape(shape)

    def backward_input(self, dy: Array) -> Array:
        """dx = dy · mask / (1 − rate)."""
        return dy if self.mask is None else dy * self.mask


class Flatten(Layer):
    """(batch, height, width, channels) → (batch, height · width · channels)."""

    def connect(self, *shapes: Shape) -> Shape:
        """(…) → (product,)."""
        return (prod(shapes[0]),)

    def forward(self, x: Array, step: Step) -> Array:
        """A view of the same elements."""
        self.x_shape = x.shape
        return x.reshape(len(x), prod(x.shape[1:]))

    def backward_input(self, dy: Array) -> Array:
        """The shape before."""
        return dy.reshape(self.x_shape)
