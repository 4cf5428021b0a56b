"""Is a layer's backward the derivative of its forward? Looked at by central differences, in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mgwfbp.errors import UserError
from mgwfbp.kernels import Array, Kernels
from mgwfbp.net.layers import Layer, Shape, Step

MOST = 200  # elements of an array that are looked at
STEP = 1e-6


def check_gradients(
    layer: Layer, *shapes: Shape, batch: int = 3, seed: int = 0, tolerance: float = 1e-5
) -> dict[str, float]:
    """The largest relative error of each gradient of `layer` for inputs of `shapes` (without the batch axis).

        >>> check_gradients(Linear(5), (7,))
        {'input': 2.1e-10, 'weight': 1.3e-10, 'bias': 6.2e-11}

    The loss is a sum of the outputs, each with a random weight; inputs and parameters are random, too. Of large arrays
    some elements are looked at. The layer is left as it is used here: make a new one for a net. Raises UserError that
    names the gradient if an error is above `tolerance`, or if a gradient has the wrong shape.
    """
    rng = np.random.default_rng(seed)
    if not isinstance(layer, Layer) or not shapes or batch < 1:
        raise UserError("check_gradients needs a layer, as Linear(5), and the shape of each of its inputs, as (7,)")
    stated = layer.connect(*shapes)
    layer.kernels = Kernels()
    who = f"layer {layer.name} ({type(layer).__name__})"
    arrays: dict[str, Array] = {}
    given: dict[str, Array] = {}
    for tensor in [*layer.parameters, *layer.state]:
        value = np.array(tensor.initial(rng, tensor.shape), np.float64)
        if tensor in layer.parameters:
            arrays[tensor.name] = value = value + 0.1 * rng.standard_normal(tensor.shape)
            given[tensor.name] = np.full(tensor.shape, np.nan)  # a gradient is written, not added to
            setattr(layer, f"d_{tensor.name}", given[tensor.name])
        setattr(layer, tensor.name, value)
    inputs = [rng.standard_normal((batch, *shape)) for shape in shapes]
    step = Step(seed=seed)

    def forward() -> Array:
        return layer.forward(inputs[0] if len(inputs) == 1 else inputs, step)

    weight = rng.standard_normal(forward().shape)
    if weight.shape != (batch, *stated):
        raise UserError(f"{who}: connect says that an output is {tuple(stated)}, forward makes {weight.shape[1:]}")
    dx = layer.backward(weight.copy())
    for name, array in given.items():
        if getattr(layer, f"d_{name}") is not array:
            raise UserError(f"{who}: d_{name} became another array; write into it: self.d_{name}[...] = …")
    names = ["input"] if len(inputs) == 1 else [f"input {place}" for place in range(len(inputs))]
    gradients = dict(zip(names, [dx] if len(inputs) == 1 else dx, strict=True))
    gradients.update({name: getattr(layer, f"d_{name}") for name in arrays})
    errors = {}
    for name, array in {**dict(zip(names, inputs, strict=True)), **arrays}.items():
        if np.shape(gradients[name]) != array.shape:
            shape = "missing" if gradients[name] is None else np.shape(gradients[name])
            raise UserError(f"{who}: the gradient of {name} is {shape}, it must be {array.shape}")
        errors[name] = _error(array, np.array(gradients[name]), lambda: float((forward() * weight).sum()), rng)
        if not errors[name] <= tolerance:
            wrong = "is not written, or added to" if np.isnan(errors[name]) else f"by {errors[name]:.1e} of its size"
            raise UserError(f"{who}: the gradient of {name} is wrong, {wrong}")
    return errors


def _error(array: Array, gradient: Array, loss: Callable[[], float], rng: np.random.Generator) -> float:
    """The largest difference between `gradient` and the difference quotients of `loss`, over the largest quotient."""
    flat = array.reshape(-1)
    places = rng.permutation(len(flat))[:MOST]
    quotients = []
    for place in places:
        kept = flat[place]
        flat[place] = kept + STEP
        above = loss()
        flat[place] = kept - STEP
        quotients.append((above - loss()) / (2 * STEP))
        flat[place] = kept
    wrong = np.abs(gradient.reshape(-1)[places] - quotients).max(initial=0.0)
    return float(wrong / max(np.abs(quotients).max(initial=0.0), 1e-12)) if wrong else 0.0
