"""LeNet as Caffe trains it on MNIST: two convolutions, two fully connected layers, 431,080 parameters at 28×28×1."""

from __future__ import annotations

from mgwfbp.net import Net
from mgwfbp.net.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU, xavier_uniform


def lenet(input_shape: tuple[int, ...] = (28, 28, 1), classes: int = 10) -> Net:
    """The network for images of `input_shape` (height, width, channels), at least 16×16."""
    net = Net("lenet", input_shape)
    x = net.chain(
        net.input,
        conv1=Conv2d(20, 5, initial=xavier_uniform(25 * input_shape[-1])),
        pool1=MaxPool2d(2),
        conv2=Conv2d(50, 5, initial=xavier_uniform(25 * 20)),
        pool2=MaxPool2d(2),
        flat=Flatten(),
    )
    x = net.chain(
        x,
        ip1=Linear(500, initial=xavier_uniform(x.shape[0])),
        relu1=ReLU(),
        ip2=Linear(classes, initial=xavier_uniform(500)),
    )
    return net.finish(x)
