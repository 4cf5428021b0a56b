"""GoogLeNet as Caffe trains it (Szegedy et al. 2015): nine Inception blocks, and two auxiliary heads on the way."""

from __future__ import annotations

from mgwfbp.net import Net, Node
from mgwfbp.net.layers import LRN, AvgPool2d, Concat, Conv2d, Dropout, Flatten, Linear, MaxPool2d, ReLU, xavier_uniform

# block -> channels of: 1×1; 3×3's reduction, 3×3; 5×5's reduction, 5×5; the pool's projection (table 1)
BLOCKS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def conv(net: Net, name: str, x: Node, channels: int, kernel: int, stride: int = 1) -> Node:
    """A convolution that keeps the size (at stride 1), then ReLU; Xavier weights, biases of 0.2."""
    fill = xavier_uniform(kernel * kernel * x.shape[-1])
    layer = Conv2d(channels, kernel, stride=stride, pad=kernel // 2, initial=fill, bias_value=0.2)
    return net.add(f"{name}/relu", ReLU(), net.add(name, layer, x))


def inception(net: Net, block: str, x: Node) -> Node:
    """Four branches side by side: 1×1, 3×3 and 5×5 behind 1×1 reductions, and a pool with a projection."""
    name, (one, reduce3, three, reduce5, five, pool) = f"inception_{block}", BLOCKS[block]
    a = conv(net, f"{name}/1x1", x, one, 1)
    b = conv(net, f"{name}/3x3", conv(net, f"{name}/3x3_reduce", x, reduce3, 1), three, 3)
    c = conv(net, f"{name}/5x5", conv(net, f"{name}/5x5_reduce", x, reduce5, 1), five, 5)
    d = net.add(f"{name}/pool", MaxPool2d(3, stride=1, pad=1), x)
    return net.add(f"{name}/output", Concat(), a, b, c, conv(net, f"{name}/pool_proj", d, pool, 1))


def classifier(net: Net, name: str, x: Node, classes: int) -> Node:
    """The linear layer of a head."""
    return net.add(f"{name}/classifier", Linear(classes, initial=xavier_uniform(x.shape[0])), x)


def auxiliary(net: Net, name: str, x: Node, classes: int) -> Node:
    """A head on the way, which gives the layers below it a gradient of their own."""
    x = net.add(f"{name}/pool", AvgPool2d(5, stride=3, ceil=True), x)
    x = net.add(f"{name}/flat", Flatten(), conv(net, f"{name}/conv", x, 128, 1))
    x = net.add(f"{name}/fc", Linear(1024, initial=xavier_uniform(x.shape[0]), bias_value=0.2), x)
    x = net.add(f"{name}/drop", Dropout(0.7), net.add(f"{name}/fc/relu", ReLU(), x))
    return classifier(net, name, x, classes)


def googlenet(input_shape: tuple[int, ...] = (224, 224, 3), classes: int = 1000) -> Net:
    """The network with both auxiliary heads, weighted 0.3: 13,378,280 parameters in 64 learnable layers."""
    net = Net("googlenet", input_shape)
    x = conv(net, "conv1/7x7_s2", net.input, 64, 7, 2)
    x = net.add("pool1/norm1", LRN(5), net.add("pool1/3x3_s2", MaxPool2d(3, stride=2, ceil=True), x))
    x = conv(net, "conv2/3x3", conv(net, "conv2/3x3_reduce", x, 64, 1), 192, 3)
    x = net.add("pool2/3x3_s2", MaxPool2d(3, stride=2, ceil=True), net.add("conv2/norm2", LRN(5), x))
    heads: list[tuple[Node, float]] = []
    for block in BLOCKS:
        x = inception(net, block, x)
        if block in ("3b", "4e"):
            x = net.add(f"pool{block[0]}/3x3_s2", MaxPool2d(3, stride=2, ceil=True), x)
        elif block in ("4a", "4d"):
            heads.append((auxiliary(net, f"loss{len(heads) + 1}", x, classes), 0.3))
    x = net.add("pool5/7x7_s1", AvgPool2d((x.shape[0], x.shape[1])), x)
    x = net.add("pool5/drop", Dropout(0.4), net.add("flat", Flatten(), x))
    return net.finish(classifier(net, "loss3", x, classes), heads)
