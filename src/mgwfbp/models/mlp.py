"""A multi-layer perceptron: the smallest net with something to merge."""

from __future__ import annotations

from mgwfbp.net import Net
from mgwfbp.net.layers import Dropout, Flatten, Linear, ReLU


def mlp(
    input_shape: tuple[int, ...] = (28, 28, 1),
    classes: int = 10,
    hidden: tuple[int, ...] = (256, 128),
    dropout: float = 0.2,
) -> Net:
    """Hidden layers of the given widths, each with ReLU and dropout, then a linear classifier."""
    net = Net("mlp", input_shape)
    x = net.add("flat", Flatten(), net.input)
    for number, width in enumerate(hidden, start=1):
        x = net.add(f"fc{number}", Linear(width), x)
        x = net.add(f"relu{number}", ReLU(), x)
        x = net.add(f"drop{number}", Dropout(dropout), x)
    return net.finish(net.add(f"fc{len(hidden) + 1}", Linear(classes), x))
