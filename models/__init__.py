"""The nets, by name. Read the file of one top to bottom; add yours to `MODELS`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mgwfbp.errors import unknown_name
from mgwfbp.models.lenet import lenet
from mgwfbp.models.mlp import mlp
from mgwfbp.models.resnet import resnet
from mgwfbp.network import Network

# name -> (builder(input_shape, classes), input shape where no data set decides it)
MODELS: dict[str, tuple[Callable[..., Network], tuple[int, ...]]] = {
    "lenet": (lenet, (28, 28, 1)),
    "mlp": (mlp, (28, 28, 1)),
    **{f"resnet{depth}": (partial(resnet, depth), (32, 32, 3)) for depth in (20, 32, 56, 110)},
}


def build(name: str, input_shape: tuple[int, ...] | None = None, classes: int = 10) -> Network:
    """The network called `name`, not yet allocated, for images of `input_shape` (height, width, channels).

    Raises UserError for an unknown name (with the nearest one) or for a shape that the net cannot take.
    """
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    builder, default_shape = MODELS[name]
    return builder(input_shape or default_shape, classes)


__all__ = ["MODELS", "build", "lenet", "mlp", "resnet"]
