"""VGG-16 and VGG-19 (Simonyan and Zisserman 2015, table 1, columns D and E): 3×3 convolutions, three wide layers."""

from __future__ import annotations

from mgwfbp.net import Net
from mgwfbp.net.layers import Conv2d, Dropout, Flatten, Linear, MaxPool2d, ReLU

# depth -> convolutions in each of the five stages
STAGES = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def vgg(depth: int, input_shape: tuple[int, ...] = (224, 224, 3), classes: int = 1000) -> Net:
    """The network of `depth` learnable layers; VGG-16 has 138,357,544 parameters, VGG-19 143,667,240."""
    net = Net(f"vgg{depth}", input_shape)
    x = net.input
    for stage, (convolutions, channels) in enumerate(
        zip(STAGES[depth], (64, 128, 256, 512, 512), strict=True), start=1
    ):
        for number in range(1, convolutions + 1):
            x = net.add(f"conv{stage}_{number}", Conv2d(channels, 3, pad=1), x)
            x = net.add(f"relu{stage}_{number}", ReLU(), x)
        x = net.add(f"pool{stage}", MaxPool2d(2), x)
    x = net.add("flat", Flatten(), x)
    for number in (6, 7):
        x = net.add(f"fc{number}", Linear(4096), x)
        x = net.add(f"relu{number}", ReLU(), x)
        x = net.add(f"drop{number}", Dropout(0.5), x)
    return net.finish(net.add("fc8", Linear(classes), x))
