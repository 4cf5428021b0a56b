"""What a layer is: declared parameters, a forward, and a backward in two halves.

Backward is split where the gradient message can leave: `backward_parameters` writes the parameter gradients into
their views of the arena, the network announces them, and only then `backward_input` computes dx. `backward` is the
textbook's: both, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mgwfbp.errors import UserError
from mgwfbp.kernels import Array, Kernels, Pair, positions

Shape = tuple[int, ...]
Initial = Callable[[np.random.Generator, Shape], np.ndarray]


@dataclass(frozen=True)
class Step:
    """Which pass this is. `first_row` is the place of this rank's first sample in the global batch, so that anything
    random (dropout) depends on the sample, not on the rank that holds it.
    """

    training: bool = True
    iteration: int = 0
    first_row: int = 0
    seed: int = 0


class Tensor(NamedTuple):
    """A declared array of a layer: name, shape and initial value."""

    name: str
    shape: Shape
    initial: Initial


class Layer:
    """Base of all layers.

    A subclass states in `connect` the shape it makes and the tensors it owns, and writes `forward`,
    `backward_parameters` (if it owns parameters) and `backward_input`. After the network is allocated, a parameter
    "weight" is the view `self.weight`, its gradient `self.d_weight`; a state tensor "mean" is `self.mean`.
    All shapes in `connect` are without the batch axis; all arrays in forward and backward have it first.
    """

    kernels: Kernels
    frozen = False  # whether its parameters stay as they are (Net.freeze): then only `backward_input` is called

    def __init__(self) -> None:
        self.name = type(self).__name__
        self.index = 0  # place in the network, set by it: part of the random streams
        self.parameters: list[Tensor] = []
        self.state: list[Tensor] = []

    @property
    def learns(self) -> bool:
        """Whether it has parameters that training changes."""
        return bool(self.parameters) and not self.frozen

    def connect(self, *shapes: Shape) -> Shape:
        """Declare parameters for inputs of `shapes`; return the output's shape. Raises UserError on a wrong shape."""
        return shapes[0]

    def forward(self, x: Array, step: Step) -> Array:
        """Output for input(s) `x`; keeps what backward needs."""
        raise NotImplementedError

    def backward_parameters(self, dy: Array) -> None:
        """Write dL/dparameter into the gradient views."""

    def backward_input(self, dy: Array) -> Array:
        """dL/dx (a list of arrays, one an input, for layers with several inputs).

        Must not read the layer's gradient views: they were announced, and a message may be changing them already.
        """
        raise NotImplementedError

    def backward(self, dy: Array) -> Array:
        """Both halves: write the parameter gradients, return dL/dx."""
        self.backward_parameters(dy)
        return self.backward_input(dy)

    def need(self, condition: bool, needs: str, got: object) -> None:
        """Raise UserError naming this layer unless `condition`: it `needs` one thing and `got` another."""
        if not condition:
            raise UserError(f"layer {self.name} ({type(self).__name__}): needs {needs}, got {got}")


def pair(value: int | Pair) -> Pair:
    """`value` for both axes, if it is one number."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def output_size(layer: Layer, shape: Shape, kernel: Pair, stride: Pair, pad: Pair) -> Pair:
    """Height and width after a window of `kernel` moved by `stride` over (H, W, C) padded by `pad`; floor, as torch."""
    layer.need(len(shape) == 3, "an input of (height, width, channels)", shape)
    height, width = (positions(shape[i], kernel[i], stride[i], pad[i]) for i in (0, 1))
    layer.need(min(height, width) >= 1, f"an input of at least the window's size {kernel} with padding {pad}", shape)
    return height, width
