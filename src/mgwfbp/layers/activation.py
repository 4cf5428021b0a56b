"""Layers without parameters that change each element, or only the shape: ReLU, Dropout, Flatten."""

from __future__ import annotations

from math import prod

import numpy as np

from mgwfbp.kernels import Array
from mgwfbp.layers.layer import Layer, Shape, Step


class ReLU(Layer):
    """y = max(x, 0)."""

    def forward(self, x: Array, step: Step) -> Array:
        """max(x, 0)."""
        self.y = self.kernels.relu(x)
        return self.y

    def backward_input(self, dy: Array) -> Array:
        """dx = dy where y > 0; at x = 0 the derivative is taken as 0."""
        return self.kernels.relu_gradient(self.y, dy)


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
        self.mask = self.kernels.xp.asarray(self._draw(x.shape, step) * x.dtype.type(1 / (1 - self.rate)))
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
