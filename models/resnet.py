"""ResNet-20/32/56/110 for 32×32 images (He et al. 2016, section 4.2): 3 stages of n blocks, 6n + 2 layers."""

from __future__ import annotations

from mgwfbp.layers import Add, BatchNorm2d, Conv2d, GlobalAvgPool, Linear, PadShortcut, ReLU
from mgwfbp.network import Network, Node


def conv_bn(net: Network, name: str, x: Node, channels: int, stride: int = 1) -> Node:
    """A 3×3 convolution without bias (BatchNorm's β takes its place), then BatchNorm."""
    x = net.add(f"{name}/conv", Conv2d(channels, 3, stride=stride, pad=1, bias=False), x)
    return net.add(f"{name}/bn", BatchNorm2d(), x)


def block(net: Network, name: str, x: Node, channels: int, stride: int) -> Node:
    """x + F(x), where F is two convolutions. The shortcut has no parameters (option A)."""
    y = net.add(f"{name}/relu1", ReLU(), conv_bn(net, f"{name}/1", x, channels, stride))
    y = conv_bn(net, f"{name}/2", y, channels)
    if stride != 1 or x.shape[-1] != channels:
        x = net.add(f"{name}/shortcut", PadShortcut(channels, stride=stride), x)
    return net.add(f"{name}/relu2", ReLU(), net.add(f"{name}/add", Add(), y, x))


def resnet(depth: int, input_shape: tuple[int, ...] = (32, 32, 3), classes: int = 10) -> Network:
    """The network of `depth` = 6n + 2 layers: 16, 32 and 64 channels at full, half and quarter size."""
    net = Network(f"resnet{depth}", input_shape)
    x = net.add("relu0", ReLU(), conv_bn(net, "stem", net.input, 16))
    for stage, channels in enumerate((16, 32, 64), start=1):
        for number in range(1, (depth - 2) // 6 + 1):
            x = block(net, f"stage{stage}/block{number}", x, channels, stride=2 if stage > 1 and number == 1 else 1)
    x = net.add("pool", GlobalAvgPool(), x)
    return net.finish(net.add("fc", Linear(classes), x))
