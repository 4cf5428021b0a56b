"""The layers, each with an explicit forward and backward. No tape, no MPI."""

from mgwfbp.net.layers.activation import Dropout, Flatten, PReLU, ReLU, Sigmoid, Softmax, Tanh
from mgwfbp.net.layers.conv import Conv2d
from mgwfbp.net.layers.initial import constant, he_normal, normal, xavier_uniform
from mgwfbp.net.layers.layer import Initial, Layer, Shape, Step, Tensor
from mgwfbp.net.layers.linear import Linear
from mgwfbp.net.layers.loss import SoftmaxCrossEntropy
from mgwfbp.net.layers.merge import Add, Concat, PadShortcut
from mgwfbp.net.layers.norm import LRN, BatchNorm2d
from mgwfbp.net.layers.pool import AvgPool2d, GlobalAvgPool, MaxPool2d

__all__ = [
    "LRN",
    "Add",
    "AvgPool2d",
    "BatchNorm2d",
    "Concat",
    "Conv2d",
    "Dropout",
    "Flatten",
    "GlobalAvgPool",
    "Initial",
    "Layer",
    "Linear",
    "MaxPool2d",
    "PReLU",
    "PadShortcut",
    "ReLU",
    "Shape",
    "Sigmoid",
    "Softmax",
    "SoftmaxCrossEntropy",
    "Step",
    "Tanh",
    "Tensor",
    "constant",
    "he_normal",
    "normal",
    "xavier_uniform",
]
