"""Weights by name: "conv1.weight" is an array, whatever flat array it lies in; and nets that begin with given ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

import numpy as np

from mgwfbp.errors import UserError
from mgwfbp.kernels import Array
from mgwfbp.net.net import Net, Place


def tensors(net: Net) -> dict[str, Array]:
    """Every parameter and running statistic of an allocated `net`, "layer.tensor" → its view, in forward order."""
    return {
        f"{layer.name}.{tensor.name}": getattr(layer, tensor.name)
        for layer in net.layers
        for tensor in [*layer.parameters, *layer.state]
    }


def at_places(places: Mapping[str, Place], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors that lie at `places` of the flat `arrays`, by name: views of them."""
    return {
        name: arrays[place.array][place.start : place.start + prod(place.shape)].reshape(place.shape)
        for name, place in places.items()
    }


def head_layers(net: Net) -> list[str]:
    """The names of the layers that make the logits: the last with parameters before each loss."""
    found = []
    for head in net.heads:
        node = head.node
        while node and not net.layers[node - 1].parameters:
            node = net.sources[node - 1][0]
        found += [net.layers[node - 1].name] if node else []
    return found


def begin_with(net: Net, given: Mapping[str, np.ndarray], where: str, *, but: Iterable[str] = ()) -> None:
    """Copy the tensors `given` into those of an allocated `net` that have the same name and shape.

    The layers `but` keep their values. Raises UserError, beginning with `where` (they come from), if another tensor of
    the net is missing there or has another shape; then nothing was copied.
    """
    kept, head = set(but), head_layers(net)
    ours = {name: array for name, array in tensors(net).items() if name.rpartition(".")[0] not in kept}
    for name, array in ours.items():
        if name not in given:
            raise UserError(f"weights {where}: they have no {name}, which {net.name} has; they are of another net")
        if tuple(given[name].shape) != tuple(array.shape):
            last = name.rpartition(".")[0] in head
            raise UserError(
                f"weights {where}: {name} is {tuple(given[name].shape)} there and {tuple(array.shape)} here; "
                + ("--replace-head begins the last layer anew" if last else "they are of another net")
            )
    for name, array in ours.items():
        array[...] = net.kernels.xp.asarray(given[name])
