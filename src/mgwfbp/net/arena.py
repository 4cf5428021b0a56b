"""Two flat arrays: all parameters and all gradients, in gradient-ready order. Everything else is views of them.

A bucket is a contiguous run of layers, hence a contiguous slice of `gradients`: merging gradients copies nothing,
and changing the schedule changes nothing but the cut points. The optimiser updates the same slice of `parameters`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

ALIGNMENT = 64  # elements; each tensor starts at a multiple, as in B-Caffe: every slice is whole vector registers long


class LayerSpec(NamedTuple):
    """One layer's tensors for the arena: `tensors` is a list of (name, shape)."""

    name: str
    tensors: Sequence[tuple[str, tuple[int, ...]]]


class Arena:
    """The parameters and gradients of a net.

    `layers` come in gradient-ready order (the layer nearest the loss first). `dtype` is the element type of both
    arrays, `xp` the array module (numpy or cupy). Attributes: `parameters`, `gradients` (1-D, equal length, padding
    stays zero), `layer_slices[i]` the slice of layer i, `layer_nbytes[i]` its bytes, `names[i]` its name,
    `layer_parameters[i]` its number of trainable values; `places["layer.tensor"]` the first element of a tensor and
    its shape.
    """

    def __init__(self, layers: Sequence[LayerSpec], dtype: Any = np.float32, xp: Any = np) -> None:
        self.names = [layer.name for layer in layers]
        self.layer_slices: list[slice] = []
        self.layer_parameters: list[int] = []
        self.places: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._tensors = [list(layer.tensors) for layer in layers]
        end = 0
        for layer in layers:
            start = end
            for name, shape in layer.tensors:
                self.places[f"{layer.name}.{name}"] = (end, tuple(shape))
                end += -(-prod(shape) // ALIGNMENT) * ALIGNMENT
            self.layer_slices.append(slice(start, end))
            self.layer_parameters.append(sum(prod(shape) for _, shape in layer.tensors))
        self.parameters = xp.zeros(end, dtype)
        self.gradients = xp.zeros(end, dtype)
        self.layer_nbytes = [(s.stop - s.start) * self.parameters.itemsize for s in self.layer_slices]

    @property
    def layers(self) -> list[tuple[str, int, int]]:
        """(name, trainable values, bytes) of each layer."""
        return list(zip(self.names, self.layer_parameters, self.layer_nbytes, strict=True))

    def views(self, layer: int) -> dict[str, tuple[Any, Any]]:
        """For each tensor of layer `layer`: its name → (parameter view, gradient view), shaped."""
        found = {}
        for name, shape in self._tensors[layer]:
            start, _ = self.places[f"{self.names[layer]}.{name}"]
            parameter, gradient = (flat[start : start + prod(shape)] for flat in (self.parameters, self.gradients))
            found[name] = parameter.reshape(shape), gradient.reshape(shape)
        return found

    def slice_of(self, first: int, last: int) -> slice:
        """The slice of the flat arrays that holds the layers first..last (inclusive): a bucket's message."""
        return slice(self.layer_slices[first].start, self.layer_slices[last].stop)

    def description(self) -> list[str]:
        """One line a tensor: name, shape, dtype, offset. Ranks with equal lines can all-reduce each other's slices."""
        return [
            f"{layer}/{name} {tuple(shape)} {self.parameters.dtype} at {self.places[f'{layer}.{name}'][0]}"
            for layer, tensors in zip(self.names, self._tensors, strict=True)
            for name, shape in tensors
        ]

    def fingerprint(self) -> str:
        """The SHA-256 of `description`, shortened: equal for arenas that can take each other's arrays."""
        return hashlib.sha256("\n".join(self.description()).encode()).hexdigest()[:16]

    def parameters_sha256(self) -> str:
        """SHA-256 of the parameter array's bytes, in hexadecimal: equal on all ranks after every iteration."""
        return hashlib.sha256(to_host(self.parameters).data).hexdigest()


def to_host(array: Any) -> np.ndarray:
    """`array` itself, or a copy in host memory if it lies on a GPU."""
    return array.get() if hasattr(array, "get") else array
