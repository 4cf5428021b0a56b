"""The nets, by name. Read the file of one top to bottom. Yours is one decorated function:

@model("tiny")
def tiny(input_shape=(28, 28, 1), classes=10):
    net = Net("tiny", input_shape)
    return net.finish(net.chain(net.input, flat=Flatten(), fc=Linear(classes)))
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mgwfbp.errors import check_free, unknown_name
from mgwfbp.models.alexnet import alexnet
from mgwfbp.models.densenet import BLOCKS, cifar_densenet, densenet
from mgwfbp.models.googlenet import googlenet
from mgwfbp.models.inception_v4 import inception_v4
from mgwfbp.models.lenet import lenet
from mgwfbp.models.mlp import mlp
from mgwfbp.models.resnet import STAGES, imagenet_resnet, resnet
from mgwfbp.models.vgg import STAGES as VGG_STAGES
from mgwfbp.models.vgg import vgg
from mgwfbp.net import Net

# name -> builder(input_shape, classes); its defaults are the original's
MODELS: dict[str, Callable[..., Net]] = {
    "lenet": lenet,
    "mlp": mlp,
    **{f"resnet{depth}": partial(resnet, depth) for depth in (20, 32, 56, 110)},
    **{f"resnet{depth}": partial(imagenet_resnet, depth) for depth in STAGES},
    **{f"densenet{depth}": partial(densenet, depth) for depth in BLOCKS},
    "densenet40": partial(cifar_densenet, 40, False),
    "densenetbc100": partial(cifar_densenet, 100, True),
    "alexnet": alexnet,
    **{f"vgg{depth}": partial(vgg, depth) for depth in VGG_STAGES},
    "googlenet": googlenet,
    "inceptionv4": inception_v4,
}


def model(name: str) -> Callable[[Callable[..., Net]], Callable[..., Net]]:
    """Decorator that registers what builds the net `name`: a function of (input_shape, classes), both with defaults.

    Raises UserError if another net has that name.
    """

    def register(builder: Callable[..., Net]) -> Callable[..., Net]:
        check_free("model", name, builder, MODELS)
        MODELS[name] = builder
        return builder

    return register


def build(name: str, input_shape: tuple[int, ...] | None = None, classes: int | None = None) -> Net:
    """The network called `name`, not yet allocated, for images of `input_shape` (height, width, channels).

    Without them the shape and the number of classes are those of the original. Raises UserError for an unknown name
    (with the nearest one) or for a shape that the net cannot take.
    """
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    given = {"input_shape": input_shape, "classes": classes}
    return MODELS[name](**{key: value for key, value in given.items() if value is not None})


def __getattr__(name: str) -> Callable[..., Net]:
    """`models.resnet20` is the builder of that name."""
    if name in MODELS:
        return MODELS[name]
    raise AttributeError(str(unknown_name("model", name, MODELS)))


__all__ = [
    "MODELS",
    "alexnet",
    "build",
    "cifar_densenet",
    "densenet",
    "googlenet",
    "imagenet_resnet",
    "inception_v4",
    "lenet",
    "mlp",
    "model",
    "resnet",
    "vgg",
]
