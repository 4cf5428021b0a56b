"""AlexNet as Caffe trains it on ImageNet (Krizhevsky et al. 2012): five convolutions, three in two groups, and LRN."""

from __future__ import annotations

from mgwfbp.net import Net
from mgwfbp.net.layers import LRN, Conv2d, Dropout, Flatten, Linear, MaxPool2d, ReLU, normal

SMALL, FC = normal(0.01), normal(0.005)


def alexnet(input_shape: tuple[int, ...] = (227, 227, 3), classes: int = 1000) -> Net:
    """The network: 60,965,224 parameters at 227×227×3 and 1,000 classes."""
    net = Net("alexnet", input_shape)
    x = net.chain(
        net.input,
        conv1=Conv2d(96, 11, stride=4, initial=SMALL),
        relu1=ReLU(),
        norm1=LRN(5),
        pool1=MaxPool2d(3, stride=2, ceil=True),
        conv2=Conv2d(256, 5, pad=2, groups=2, initial=SMALL, bias_value=0.1),
        relu2=ReLU(),
        norm2=LRN(5),
        pool2=MaxPool2d(3, stride=2, ceil=True),
        conv3=Conv2d(384, 3, pad=1, initial=SMALL),
        relu3=ReLU(),
        conv4=Conv2d(384, 3, pad=1, groups=2, initial=SMALL, bias_value=0.1),
        relu4=ReLU(),
        conv5=Conv2d(256, 3, pad=1, groups=2, initial=SMALL, bias_value=0.1),
        relu5=ReLU(),
        pool5=MaxPool2d(3, stride=2, ceil=True),
        flat=Flatten(),
        fc6=Linear(4096, initial=FC, bias_value=0.1),
        relu6=ReLU(),
        drop6=Dropout(0.5),
        fc7=Linear(4096, initial=FC, bias_value=0.1),
        relu7=ReLU(),
        drop7=Dropout(0.5),
        fc8=Linear(classes, initial=SMALL),
    )
    return net.finish(x)
