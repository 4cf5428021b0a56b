"""Residual networks (He et al. 2016).

ResNet-20/32/56/110 for 32×32 images (section 4.2): three stages of n blocks, 6n + 2 layers, shortcuts without
parameters. ResNet-18/34/50/101/152 for 224×224 images (table 1): four stages; from 50 on the blocks are bottlenecks,
and a shortcut that changes the shape is a 1×1 convolution with BatchNorm. The stride of a bottleneck is in its first
1×1 convolution, as in the paper (torchvision's "v1.5" has it in the 3×3).
"""

from __future__ import annotations

from mgwfbp.net import Net, Node
from mgwfbp.net.layers import Add, BatchNorm2d, Conv2d, GlobalAvgPool, Linear, MaxPool2d, PadShortcut, ReLU


def conv_bn(net: Net, name: str, x: Node, channels: int, kernel: int = 3, stride: int = 1) -> Node:
    """A convolution that keeps the size (at stride 1), without bias (BatchNorm's β takes its place), then BatchNorm."""
    x = net.add(f"{name}/conv", Conv2d(channels, kernel, stride=stride, pad=kernel // 2, bias=False), x)
    return net.add(f"{name}/bn", BatchNorm2d(), x)


def join(net: Net, name: str, x: Node, y: Node) -> Node:
    """The end of every block: ReLU of the sum."""
    return net.add(f"{name}/relu", ReLU(), net.add(f"{name}/add", Add(), y, x))


def cifar_block(net: Net, name: str, x: Node, channels: int, stride: int) -> Node:
    """x + F(x), where F is two convolutions. The shortcut has no parameters (option A)."""
    y = net.add(f"{name}/relu1", ReLU(), conv_bn(net, f"{name}/1", x, channels, stride=stride))
    y = conv_bn(net, f"{name}/2", y, channels)
    if stride != 1 or x.shape[-1] != channels:
        x = net.add(f"{name}/shortcut", PadShortcut(channels, stride=stride), x)
    return join(net, name, x, y)


def resnet(depth: int, input_shape: tuple[int, ...] = (32, 32, 3), classes: int = 10) -> Net:
    """The network of `depth` = 6n + 2 layers: 16, 32 and 64 channels at full, half and quarter size."""
    net = Net(f"resnet{depth}", input_shape)
    x = net.add("relu0", ReLU(), conv_bn(net, "stem", net.input, 16))
    for stage, channels in enumerate((16, 32, 64), start=1):
        for number in range(1, (depth - 2) // 6 + 1):
            x = cifar_block(net, f"stage{stage}/block{number}", x, channels, 2 if stage > 1 and number == 1 else 1)
    x = net.add("pool", GlobalAvgPool(), x)
    return net.finish(net.add("fc", Linear(classes), x))


def basic_block(net: Net, name: str, x: Node, channels: int, stride: int) -> Node:
    """x + F(x), where F is two 3×3 convolutions."""
    y = net.add(f"{name}/relu1", ReLU(), conv_bn(net, f"{name}/1", x, channels, stride=stride))
    y = conv_bn(net, f"{name}/2", y, channels)
    if y.shape != x.shape:
        x = conv_bn(net, f"{name}/shortcut", x, channels, 1, stride)
    return join(net, name, x, y)


def bottleneck(net: Net, name: str, x: Node, channels: int, stride: int) -> Node:
    """x + F(x), where F narrows by 1×1 to `channels`, convolves 3×3, and widens by 1×1 to four times as many."""
    y = net.add(f"{name}/relu1", ReLU(), conv_bn(net, f"{name}/1", x, channels, 1, stride))
    y = net.add(f"{name}/relu2", ReLU(), conv_bn(net, f"{name}/2", y, channels))
    y = conv_bn(net, f"{name}/3", y, 4 * channels, 1)
    if y.shape != x.shape:
        x = conv_bn(net, f"{name}/shortcut", x, 4 * channels, 1, stride)
    return join(net, name, x, y)


STAGES = {
    18: (basic_block, (2, 2, 2, 2)),
    34: (basic_block, (3, 4, 6, 3)),
    50: (bottleneck, (3, 4, 6, 3)),
    101: (bottleneck, (3, 4, 23, 3)),
    152: (bottleneck, (3, 8, 36, 3)),
}


def imagenet_resnet(depth: int, input_shape: tuple[int, ...] = (224, 224, 3), classes: int = 1000) -> Net:
    """The network of `depth` layers: a 7×7 stem, then stages of 64, 128, 256 and 512 channels."""
    net = Net(f"resnet{depth}", input_shape)
    block, stages = STAGES[depth]
    x = net.add("relu0", ReLU(), conv_bn(net, "stem", net.input, 64, 7, 2))
    x = net.add("pool0", MaxPool2d(3, stride=2, pad=1), x)
    for stage, blocks in enumerate(stages, start=1):
        for number in range(1, blocks + 1):
            stride = 2 if stage > 1 and number == 1 else 1
            x = block(net, f"stage{stage}/block{number}", x, 32 * 2**stage, stride)
    x = net.add("pool", GlobalAvgPool(), x)
    return net.finish(net.add("fc", Linear(classes), x))
