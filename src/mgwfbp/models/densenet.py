"""DenseNet-121/161/169/201 for 224×224 images (Huang et al. 2017, table 1): a layer sees all before it in its block.

The "BC" form: a layer first narrows by 1×1 to four times its growth rate, a transition halves the channels.
DenseNet-40 and DenseNet-BC-100 for 32×32 images follow (section 4.1).
"""

from __future__ import annotations

from mgwfbp.net import Net, Node
from mgwfbp.net.layers import AvgPool2d, BatchNorm2d, Concat, Conv2d, GlobalAvgPool, Linear, MaxPool2d, ReLU

# depth -> (growth rate, channels of the stem, layers of the four blocks)
BLOCKS = {
    121: (32, 64, (6, 12, 24, 16)),
    161: (48, 96, (6, 12, 36, 24)),
    169: (32, 64, (6, 12, 32, 32)),
    201: (32, 64, (6, 12, 48, 32)),
}


def bn_relu_conv(net: Net, name: str, x: Node, channels: int, kernel: int) -> Node:
    """BatchNorm, ReLU, then a convolution that keeps the size, without bias: the order of pre-activation."""
    x = net.add(f"{name}/relu", ReLU(), net.add(f"{name}/bn", BatchNorm2d(), x))
    return net.add(f"{name}/conv", Conv2d(channels, kernel, pad=kernel // 2, bias=False), x)


def dense_layer(net: Net, name: str, x: Node, growth: int) -> Node:
    """`growth` new channels beside those of x."""
    y = bn_relu_conv(net, f"{name}/1", x, 4 * growth, 1)
    y = bn_relu_conv(net, f"{name}/2", y, growth, 3)
    return net.add(f"{name}/concat", Concat(), x, y)


def densenet(depth: int, input_shape: tuple[int, ...] = (224, 224, 3), classes: int = 1000) -> Net:
    """The network of `depth` layers."""
    growth, channels, blocks = BLOCKS[depth]
    net = Net(f"densenet{depth}", input_shape)
    x = net.add("stem/conv", Conv2d(channels, 7, stride=2, pad=3, bias=False), net.input)
    x = net.add("stem/relu", ReLU(), net.add("stem/bn", BatchNorm2d(), x))
    x = net.add("stem/pool", MaxPool2d(3, stride=2, pad=1), x)
    for block, layers in enumerate(blocks, start=1):
        for number in range(1, layers + 1):
            x = dense_layer(net, f"block{block}/layer{number}", x, growth)
        if block < len(blocks):
            x = bn_relu_conv(net, f"transition{block}", x, x.shape[-1] // 2, 1)
            x = net.add(f"transition{block}/pool", AvgPool2d(2), x)
    x = net.add("relu", ReLU(), net.add("bn", BatchNorm2d(), x))
    x = net.add("pool", GlobalAvgPool(), x)
    return net.finish(net.add("fc", Linear(classes), x))


def cifar_densenet(depth: int, bottleneck: bool, input_shape: tuple[int, ...] = (32, 32, 3), classes: int = 10) -> Net:
    """The networks for 32×32 images, growth rate 12: three blocks of equal depth.

    Without bottlenecks (depth 40: 1,019,722 parameters) a layer is one 3×3 convolution and a transition keeps the
    channels; with them (depth 100, "BC": 769,162) it is as above, and a transition halves the channels.
    """
    net = Net(f"densenet{'bc' * bottleneck}{depth}", input_shape)
    growth, layers = 12, (depth - 4) // (6 if bottleneck else 3)
    x = net.add("stem", Conv2d(2 * growth if bottleneck else 16, 3, pad=1, bias=False), net.input)
    for block in (1, 2, 3):
        for number in range(1, layers + 1):
            name = f"block{block}/layer{number}"
            if bottleneck:
                x = dense_layer(net, name, x, growth)
            else:
                x = net.add(f"{name}/concat", Concat(), x, bn_relu_conv(net, name, x, growth, 3))
        if block < 3:
            channels = x.shape[-1] // 2 if bottleneck else x.shape[-1]
            x = bn_relu_conv(net, f"transition{block}", x, channels, 1)
            x = net.add(f"transition{block}/pool", AvgPool2d(2), x)
    x = net.add("relu", ReLU(), net.add("bn", BatchNorm2d(), x))
    x = net.add("pool", GlobalAvgPool(), x)
    return net.finish(net.add("fc", Linear(classes), x))
