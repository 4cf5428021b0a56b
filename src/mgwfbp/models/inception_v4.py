"""Inception-v4 for 299×299 images (Szegedy et al. 2017, figures 3 to 9): branches of many shapes, side by side.

A branch is written as a list of (channels, kernel) or (channels, kernel, stride): convolutions in a row. Those of
stride 2, and some of the stem, take no padding; the others keep the size.
"""

from __future__ import annotations

from mgwfbp.net import Net, Node
from mgwfbp.net.layers import AvgPool2d, BatchNorm2d, Concat, Conv2d, Dropout, GlobalAvgPool, Linear, MaxPool2d, ReLU
from mgwfbp.net.layers.layer import pair

Branch = list[tuple]


def conv(
    net: Net, name: str, x: Node, channels: int, kernel: int | tuple[int, int], stride: int = 1, valid: bool = False
) -> Node:
    """A convolution without bias, BatchNorm, ReLU. `valid` takes no padding."""
    height, width = pair(kernel)
    pad = (0, 0) if valid or stride > 1 else (height // 2, width // 2)
    x = net.add(f"{name}/conv", Conv2d(channels, (height, width), stride=stride, pad=pad, bias=False), x)
    return net.add(f"{name}/relu", ReLU(), net.add(f"{name}/bn", BatchNorm2d(), x))


def branch(net: Net, name: str, x: Node, steps: Branch) -> Node:
    """The convolutions of `steps` in a row."""
    for number, step in enumerate(steps, start=1):
        x = conv(net, f"{name}.{number}", x, *step)
    return x


def mixed(net: Net, name: str, x: Node, *branches: Branch, pool: int | None = None) -> Node:
    """`branches` side by side; before them average pooling and a 1×1 convolution to `pool` channels, if given."""
    ends = []
    if pool is not None:
        y = net.add(f"{name}/pool", AvgPool2d(3, stride=1, pad=1), x)
        ends.append(conv(net, f"{name}/pool_proj", y, pool, 1))
    ends += [branch(net, f"{name}/{letter}", x, steps) for letter, steps in zip("abc", branches, strict=False)]
    return net.add(f"{name}/concat", Concat(), *ends)


def reduction(net: Net, name: str, x: Node, *branches: Branch) -> Node:
    """Half the size: a max pool beside `branches` that end with stride 2."""
    ends = [net.add(f"{name}/pool", MaxPool2d(3, stride=2), x)]
    ends += [branch(net, f"{name}/{letter}", x, steps) for letter, steps in zip("ab", branches, strict=False)]
    return net.add(f"{name}/concat", Concat(), *ends)


def stem(net: Net, x: Node) -> Node:
    """Figure 3: from 299×299×3 to 35×35×384."""
    x = conv(net, "stem/1", x, 32, 3, 2)
    x = conv(net, "stem/2", x, 32, 3, valid=True)
    x = reduction(net, "stem/3", conv(net, "stem/2b", x, 64, 3), [(96, 3, 2)])
    left = branch(net, "stem/4a", x, [(64, 1)])
    right = branch(net, "stem/4b", x, [(64, 1), (64, (1, 7)), (64, (7, 1))])
    ends = [conv(net, f"stem/4{side}/out", y, 96, 3, valid=True) for side, y in (("a", left), ("b", right))]
    return reduction(net, "stem/5", net.add("stem/4/concat", Concat(), *ends), [(192, 3, 2)])


def block_c(net: Net, name: str, x: Node) -> Node:
    """Figure 6: the branches split once more at their ends, into 1×3 and 3×1."""
    y = net.add(f"{name}/pool", AvgPool2d(3, stride=1, pad=1), x)
    ends = [conv(net, f"{name}/pool_proj", y, 256, 1), conv(net, f"{name}/a", x, 256, 1)]
    for letter, steps in (("b", [(384, 1)]), ("c", [(384, 1), (448, (3, 1)), (512, (1, 3))])):
        y = branch(net, f"{name}/{letter}", x, steps)
        ends += [conv(net, f"{name}/{letter}/{h}x{w}", y, 256, (h, w)) for h, w in ((1, 3), (3, 1))]
    return net.add(f"{name}/concat", Concat(), *ends)


def inception_v4(input_shape: tuple[int, ...] = (299, 299, 3), classes: int = 1000) -> Net:
    """The network: stem, 4 × A, reduction, 7 × B, reduction, 3 × C, dropout, classifier."""
    net = Net("inceptionv4", input_shape)
    x = stem(net, net.input)
    for number in range(1, 5):
        x = mixed(net, f"A{number}", x, [(96, 1)], [(64, 1), (96, 3)], [(64, 1), (96, 3), (96, 3)], pool=96)
    x = reduction(net, "reduction_A", x, [(384, 3, 2)], [(192, 1), (224, 3), (256, 3, 2)])
    long = [(192, 1), (192, (1, 7)), (224, (7, 1)), (224, (1, 7)), (256, (7, 1))]
    for number in range(1, 8):
        x = mixed(net, f"B{number}", x, [(384, 1)], [(192, 1), (224, (1, 7)), (256, (7, 1))], long, pool=128)
    x = reduction(net, "reduction_B", x, [(192, 1), (192, 3, 2)], [(256, 1), (256, (1, 7)), (320, (7, 1)), (320, 3, 2)])
    for number in range(1, 4):
        x = block_c(net, f"C{number}", x)
    x = net.add("dropout", Dropout(0.2), net.add("pool", GlobalAvgPool(), x))
    return net.finish(net.add("fc", Linear(classes), x))
