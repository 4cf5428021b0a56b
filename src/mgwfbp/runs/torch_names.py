"""PyTorch's names and layouts: (out, in) where we have (in, out), channels before height and width, "weight" for γ."""

from __future__ import annotations

import re

import numpy as np

from mgwfbp.models.resnet import STAGES, bottleneck
from mgwfbp.net import Net, to_host
from mgwfbp.net.layers import BatchNorm2d, Conv2d, Flatten, Layer, Linear

HWIO_TO_OIHW = (3, 2, 0, 1)
BATCH_NORM = {"gamma": "weight", "beta": "bias"}  # and the running ones as they are
VISION = {f"resnet{depth}": block for depth, (block, _) in STAGES.items()}  # torchvision has the same nets


def layout_of(array: np.ndarray) -> tuple[int, ...] | None:
    """The permutation of a parameter's axes to torch's order: convolution weights, linear weights, or none."""
    return HWIO_TO_OIHW if array.ndim == 4 else (1, 0) if array.ndim == 2 else None


def torch_tensors(net: Net) -> dict[str, np.ndarray]:
    """The tensors of an allocated `net` for `load_state_dict` of a module whose parts are called like our layers.

    A slash becomes a dot: "stage1/block1/1/conv" is the module's stage1.block1.1.conv. ResNet-18 to 152 have
    torchvision's names. Where a linear layer follows Flatten, its inputs go from our order (height, width, channel) to
    torch's (channel, height, width).
    """
    found = {}
    for layer in net.layers:
        name = _vision(layer.name) if net.name in VISION else layer.name.replace("/", ".")
        for tensor in [*layer.parameters, *layer.state]:
            array = to_host(getattr(layer, tensor.name))
            if isinstance(layer, Conv2d | Linear):
                order = layout_of(array)
                array = _by_channel(net, layer, array) if array.ndim == 2 else array
                array = array if order is None else array.transpose(order)
            last = BATCH_NORM.get(tensor.name, tensor.name) if isinstance(layer, BatchNorm2d) else tensor.name
            found[f"{name}.{last}"] = array
        if isinstance(layer, BatchNorm2d):
            found[f"{name}.num_batches_tracked"] = np.array(0, np.int64)
    return found


def note_for(net: Net) -> str | None:
    """What must be changed in torchvision's net before it computes what ours does; None if nothing must."""
    if VISION.get(net.name) is not bottleneck:
        return None
    return (
        "the stride is in the first convolution of a bottleneck, as in the paper, where torchvision has it in the "
        "second: for layer in (net.layer2, net.layer3, net.layer4): "
        "layer[0].conv1.stride, layer[0].conv2.stride = (2, 2), (1, 1)"
    )


def _by_channel(net: Net, layer: Layer, weight: np.ndarray) -> np.ndarray:
    """The rows of a linear `weight` (in, out) in torch's order, if its input was an image that Flatten laid out."""
    node = net.sources[layer.index][0]
    while node and not isinstance(net.layers[node - 1], Flatten):
        if len(net.sources[node - 1]) != 1 or net.layers[node - 1].parameters:
            return weight
        node = net.sources[node - 1][0]
    shape = net.shapes[net.sources[node - 1][0]] if node else ()
    if len(shape) != 3:
        return weight
    return weight.reshape(*shape, -1).transpose(2, 0, 1, 3).reshape(weight.shape)


def _vision(name: str) -> str:
    """torchvision's name of a layer of our ImageNet ResNets."""
    for pattern, theirs in (
        (r"stem/(conv|bn)", r"\g<1>1"),
        (r"stage(\d)/block(\d+)/shortcut/conv", r"layer\1.\2.downsample.0"),
        (r"stage(\d)/block(\d+)/shortcut/bn", r"layer\1.\2.downsample.1"),
        (r"stage(\d)/block(\d+)/(\d)/(conv|bn)", r"layer\1.\2.\4\3"),
    ):
        if match := re.fullmatch(pattern, name):
            # Their blocks are counted from 0.
            return re.sub(r"(layer\d)\.(\d+)", lambda found: f"{found[1]}.{int(found[2]) - 1}", match.expand(theirs))
    return name
