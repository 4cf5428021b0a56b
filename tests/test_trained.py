"""Using what was trained: predict, evaluate, export; what is exported gives the same answers to NumPy and to torch."""

from __future__ import annotations

import json
from collections import OrderedDict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from mgwfbp.data import Dataset, Inputs
from mgwfbp.errors import UserError
from mgwfbp.models import MODELS, build
from mgwfbp.net import fuse, tensors
from mgwfbp.net.layers import Step
from mgwfbp.runs.torch_names import torch_tensors
from mgwfbp.runs.trained import Trained, load_weights, trained

SEEN = Inputs((28, 28, 1), np.array([40.0]), np.array([70.0]), tuple("abcdefghij"), border=(0, 0))


@pytest.fixture(scope="module")
def lenet():
    return Trained(build("lenet").allocate(seed=5), SEEN, {"options": {"data": "mnist5k", "lr": 0.02}, "iteration": 7})


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (6, 28, 28, 1), np.uint8)


def random_statistics(net):
    rng = np.random.default_rng(1)
    for name, array in tensors(net).items():
        if name.endswith(("running_mean", "gamma", "beta", "bias")):
            array[...] = rng.normal(0.1, 0.2, array.shape)
        elif name.endswith("running_var"):
            array[...] = rng.uniform(0.5, 1.5, array.shape)
    return net


def test_an_exported_file_is_the_net_again(lenet, images, tmp_path):
    path = tmp_path / "lenet.safetensors"
    lenet.export(path)
    again = trained(path)
    assert np.array_equal(again.predict(images), lenet.predict(images))
    assert again.about == {"model": "lenet", "options": {"data": "mnist5k", "lr": 0.02}, "iteration": 7}
    assert again.inputs.to_dict() == SEEN.to_dict()
    assert again.predict(images[:0]).shape == (0, 10)
    assert again.predict(images).sum(axis=1) == pytest.approx(np.ones(6))


def test_numpy_and_safetensors_alone_can_use_it(lenet, images, tmp_path):
    from safetensors import safe_open

    lenet.export(tmp_path / "w.safetensors")
    with safe_open(tmp_path / "w.safetensors", "np") as file:
        w, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    seen = json.loads(about["input"])
    x = (images - np.array(seen["mean"])) / np.array(seen["std"])

    def conv(x, weight, bias):
        windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[:2], axis=(1, 2))
        return np.einsum("nijcuv,uvco->nijo", windows, weight) + bias

    def pool(x):
        n, h, w, c = x.shape
        return x.reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))

    x = pool(conv(x, w["conv1.weight"], w["conv1.bias"]))
    x = pool(conv(x, w["conv2.weight"], w["conv2.bias"])).reshape(len(x), -1)
    x = np.maximum(x @ w["ip1.weight"] + w["ip1.bias"], 0) @ w["ip2.weight"] + w["ip2.bias"]
    chances = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    assert lenet.predict(images) == pytest.approx(chances, abs=1e-5)
    assert seen["class_names"] == list("abcdefghij")


def test_a_plain_torch_module_with_our_names_loads_it(lenet, images, tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    assert lenet.export(tmp_path / "t.safetensors", torch=True) is None
    nn = torch.nn
    parts = OrderedDict(
        conv1=nn.Conv2d(1, 20, 5), pool1=nn.MaxPool2d(2), conv2=nn.Conv2d(20, 50, 5), pool2=nn.MaxPool2d(2),
        flat=nn.Flatten(), ip1=nn.Linear(800, 500), relu1=nn.ReLU(), ip2=nn.Linear(500, 10),
    )  # fmt: skip
    net = nn.Sequential(parts)
    net.load_state_dict(load_file(tmp_path / "t.safetensors"))
    x = torch.from_numpy(SEEN.normalised(images).transpose(0, 3, 1, 2))
    with torch.no_grad():
        chances = net(x).softmax(1).numpy()
    assert lenet.predict(images) == pytest.approx(chances, abs=1e-5)
    with pytest.raises(UserError, match="exported for PyTorch, in its layouts; export again without --torch"):
        trained(tmp_path / "t.safetensors")


@pytest.fixture(scope="module")
def torchvision():
    """The package, whose nets are plain Python; its compiled operators want the libraries of a GPU."""
    torch, found = pytest.importorskip("torch"), find_spec("torchvision")
    if found is None:
        pytest.skip("torchvision is not installed")
    try:
        torch.ops.load_library(next(Path(found.submodule_search_locations[0]).glob("_C*.so")))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):  # it asks for these as it is imported
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        yield import_module("torchvision")
    else:
        yield import_module("torchvision")


@pytest.mark.all  # importing torchvision takes seven seconds
@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_resnets_load_into_torchvisions(name, tmp_path, torchvision):
    import torch
    from safetensors.torch import load_file

    ours = random_statistics(fuse(build(name, (48, 48, 3), 7)).allocate(seed=2))
    seen = Inputs((48, 48, 3), np.full(3, 120.0), np.full(3, 60.0), tuple("abcdefg"))
    note = Trained(ours, seen).export(tmp_path / "t.safetensors", torch=True)
    net = getattr(torchvision.models, name)(num_classes=7)
    net.load_state_dict(load_file(tmp_path / "t.safetensors"))
    if note is not None:  # what the export says must be done: its own words are run
        exec(note.partition(": ")[2].replace(": layer[0]", ":\n layer[0]"), {"net": net})
    assert (note is None) == (name == "resnet18")
    x = seen.normalised(np.random.default_rng(3).integers(0, 256, (2, 48, 48, 3), np.uint8))
    with torch.no_grad():
        theirs = net.eval()(torch.from_numpy(x.transpose(0, 3, 1, 2))).numpy()
    logits = ours.logits(x, Step(training=False))[-1]
    assert logits == pytest.approx(theirs, rel=1e-3, abs=1e-4 * float(np.abs(theirs).max()))


SMALL = {"inceptionv4": (139, 139, 3), "googlenet": (96, 96, 3), "alexnet": (227, 227, 3)}


@pytest.mark.parametrize("name", MODELS)
def test_every_net_has_names_that_torch_can_take(name):
    net = build(name, SMALL.get(name), 3)
    net.kernels = None
    arrays = {}
    for layer in net.layers:  # without memory for 100 million weights
        for tensor in [*layer.parameters, *layer.state]:
            setattr(layer, tensor.name, np.broadcast_to(np.float32(0), tensor.shape))
    arrays = torch_tensors(net)
    declared = [(layer, tensor) for layer in net.layers for tensor in [*layer.parameters, *layer.state]]
    tracked = [key for key in arrays if key.endswith("num_batches_tracked")]
    assert len(arrays) == len(declared) + len(tracked)
    assert all("/" not in key for key in arrays)


def test_weights_that_are_none(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"no weights at all")
    with pytest.raises(UserError, match="not a file of safetensors"):
        trained(tmp_path / "x.safetensors")
    header = b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}      '
    (tmp_path / "z.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    with pytest.raises(UserError, match="of a type that NumPy does not have"):
        trained(tmp_path / "z.safetensors")
    with pytest.raises(UserError, match="no run folder with a checkpoint, and no file of weights"):
        trained(tmp_path / "nowhere")
    save_file({"a": np.zeros(3)}, tmp_path / "y.safetensors")
    with pytest.raises(UserError, match="it does not say what images the net was trained on"):
        trained(tmp_path / "y.safetensors")


def test_a_net_of_ones_own_begins_with_it(lenet, tmp_path):
    lenet.export(tmp_path / "w.safetensors")
    net = load_weights(build("lenet", (28, 28, 1), 4), tmp_path / "w.safetensors", but=("ip2",), seed=9)
    assert np.array_equal(tensors(net)["conv2.weight"], tensors(lenet.net)["conv2.weight"])
    data = Dataset.from_arrays("four", np.zeros((10, 28, 28), np.uint8), np.arange(10) % 4)
    assert Trained(net, data).predict(data.val_images).shape == (2, 4)


def test_images_that_the_net_does_not_see(lenet):
    with pytest.raises(UserError, match="must be uint8, 0 to 255, found float32"):
        lenet.predict(np.zeros((1, 28, 28, 1), np.float32))
    with pytest.raises(UserError, match=r"the net sees images of \(28, 28, 1\), found \(1, 32, 32, 3\)"):
        lenet.predict(np.zeros((1, 32, 32, 3), np.uint8))
