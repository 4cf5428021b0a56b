"""The GPU kernel set under the layers and whole nets, without a GPU; and which set is chosen where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mgwfbp.data.inputs import Inputs
from mgwfbp.errors import UserError
from mgwfbp.kernels import Kernels, kernel_set
from mgwfbp.kernels.gpu import load, sources
from mgwfbp.models import build
from mgwfbp.net import Arena, LayerSpec, Net, fuse
from mgwfbp.net.layers import LRN, AvgPool2d, Conv2d, Dropout, Flatten, GlobalAvgPool, Linear, MaxPool2d, PReLU, Step
from mgwfbp.optim.sgd import SGD
from tests import cuda_on_host
from tests.cuda_on_host import DEVICE, TOLERANCE, random, to_device, to_host
from tests.streams_on_host import LazyCupy, nothing_in_the_default_stream
from tests.test_cudnn import with_cudnn
from tests.test_layers import CASES
from tests.torch_reference import distance

numpy_set = Kernels()


def run_layer(make, shapes, dtype, kernels, inputs, dy, convert):
    layer = make()
    layer.kernels = kernels
    layer.connect(*shapes)
    arena = Arena([LayerSpec("layer", [(t.name, t.shape) for t in layer.parameters])], dtype, kernels.xp)
    for number, (name, (parameter, gradient)) in enumerate(arena.views(0).items()):
        parameter[...] = convert(random(dtype, *parameter.shape, seed=number))
        gradient[...] = np.nan
        setattr(layer, name, parameter)
        setattr(layer, f"d_{name}", gradient)
    for tensor in layer.state:
        setattr(layer, tensor.name, convert(tensor.initial(np.random.default_rng(0), tensor.shape).astype(dtype)))
    inputs = [convert(x) for x in inputs]
    y = layer.forward(inputs if len(inputs) > 1 else inputs[0], Step(seed=3))
    dx = layer.backward(convert(dy(y.shape)))
    results = [y, *(dx if isinstance(dx, list) else [dx]), *(getattr(layer, f"d_{t.name}") for t in layer.parameters)]
    return [np.asarray(to_host(array) if kernels is not numpy_set else array) for array in results]


@pytest.mark.parametrize("name", [*CASES, "dropout"])
def test_every_layer_is_the_same_on_the_device(name, dtype):
    """No layer mixes host and device arrays, or waits for the device."""
    make, shapes, _ = CASES.get(name) or (lambda: Dropout(0.4), [(5, 3)], None)
    inputs = [random(dtype, 3, *shape, seed=seed) for seed, shape in enumerate(shapes)]
    results = [
        run_layer(make, shapes, dtype, kernels, inputs, lambda shape: random(dtype, *shape, seed=9), convert)
        for kernels, convert in ((numpy_set, np.asarray), (DEVICE, to_device))
    ]
    for theirs, ours in zip(*results, strict=True):
        assert ours.dtype == np.dtype(dtype)
        assert distance(ours, theirs) < TOLERANCE[dtype] * 10


def small_zoo():
    """What other published nets have and these have not: LRN, groups, dropout, PReLU, ceil, auxiliary heads."""
    net = Net("zoo", (13, 11, 3))
    x = net.chain(
        net.input,
        conv1=Conv2d(8, 5, stride=2, pad=2),
        prelu=PReLU(),
        norm=LRN(5, alpha=0.1),
        pool1=MaxPool2d(3, stride=2, ceil=True),
        conv2=Conv2d(6, 3, pad=1, groups=2),
    )
    side = net.chain(x, flat1=Flatten(), fc1=Linear(4))
    y = net.chain(x, pool2=AvgPool2d(3, stride=2, pad=1, ceil=True), flat2=Flatten(), drop=Dropout(0.4), fc2=Linear(4))
    return net.finish(y, [(side, 0.3)], label_smoothing=0.1)


NETS = {
    "lenet": lambda: build("lenet", (20, 20, 1)),
    "resnet20": lambda: build("resnet20", (8, 8, 3)),
    "zoo": small_zoo,
}


def train(net, kernels, dtype, iterations):
    """Losses and parameters after some iterations, as training does them; nothing is read before the end."""
    net = fuse(net).allocate(seed=1, dtype=dtype, kernels=kernels)
    sgd = SGD(lr=0.01, momentum=0.9, weight_decay=1e-3, nesterov=True).open(net.arena, kernels)
    losses, right = [], []
    for iteration in range(iterations):
        images = random(dtype, 4, *net.input.shape, seed=iteration)
        loss, correct = net.forward(images, np.arange(4) % net.classes, Step(iteration=iteration))
        net.backward()
        sgd.update(net.arena.layer_slices)
        losses.append(loss)
        right.append(correct)
    loss, _ = net.forward(images, np.arange(4) % net.classes, Step(training=False))
    host = (lambda a: a) if kernels is numpy_set else to_host
    return (
        [float(host(value)) for value in [*losses, loss]],
        [int(host(value)) for value in right],
        host(net.arena.parameters),
        host(net.state),
    )


@pytest.mark.parametrize("convolutions", ["products", "plans"])
@pytest.mark.parametrize("name", NETS)
def test_two_iterations_of_whole_nets(name, dtype, convolutions):
    theirs = train(NETS[name](), numpy_set, dtype, 2)
    ours = train(NETS[name](), DEVICE if convolutions == "products" else with_cudnn(), dtype, 2)
    tolerance = 1e-9 if dtype == "float64" else 1e-3
    assert ours[0] == pytest.approx(theirs[0], rel=tolerance)
    assert ours[1] == theirs[1]
    assert distance(ours[2], theirs[2]) < tolerance
    if len(theirs[3]):
        assert distance(ours[3], theirs[3]) < tolerance


def test_a_view_that_shows_one_value_many_times_is_not_added_to_in_place():
    """GlobalAvgPool's gradient is such a view, and the node before it has another gradient."""
    gradients = []
    for kernels in (numpy_set, DEVICE):
        net = Net("two ways", (4, 4, 3))
        x = net.add("conv", Conv2d(5, 3, pad=1), net.input)
        pooled, flat = net.add("pool", GlobalAvgPool(), x), net.add("flat", Flatten(), x)
        heads = [net.add(name, Linear(2), node) for name, node in (("one", flat), ("two", pooled))]
        net.finish(heads[1], [(heads[0], 1.0)]).allocate(dtype=np.float64, kernels=kernels)
        net.forward(random("float64", 2, 4, 4, 3), np.array([0, 1]), Step())
        net.backward()
        gradients.append(net.arena.gradients.view(np.ndarray))
    assert distance(gradients[1], gradients[0]) < 1e-12


def put_in_cupys_place(monkeypatch, module):
    """Let `import cupy` give `module`."""
    for place in ("mgwfbp.kernels.choose", "mgwfbp.kernels.gpu.load"):  # and no numba, which takes a second to load
        monkeypatch.setattr(f"{place}.find_spec", lambda name: object() if name == "cupy" else None)
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setitem(sys.modules, "cudnn", None)  # an ImportError
    monkeypatch.setitem(sys.modules, "mgwfbp.kernels.gpu.launch", None)  # what the test imports goes with the test
    del sys.modules["mgwfbp.kernels.gpu.launch"]
    monkeypatch.setenv("CUPY_TF32", "1")
    monkeypatch.setattr("mgwfbp.kernels.choose._say_once", lambda text: sys.stderr.write(text + "\n"))
    monkeypatch.delenv("MGWFBP_KERNELS", raising=False)
    load._made.cache_clear()


def test_where_there_is_a_gpu_the_set_is_loaded_and_a_net_trains(monkeypatch, capsys):
    """All the way from the choice of the set to CuPy's RawModule, which alone is a stand-in."""
    put_in_cupys_place(monkeypatch, LazyCupy())
    monkeypatch.setattr(cuda_on_host, "started", nothing_in_the_default_stream)
    monkeypatch.setattr(cuda_on_host, "compiled", [])
    found = kernel_set()
    assert cuda_on_host.compiled == ["float32"] * len(sources.FAMILIES)  # now, while the other ranks wait
    load._made.cache_clear()
    assert found.name == "cupy"
    assert capsys.readouterr().err.startswith("mgwfbp: cuDNN cannot be used (")
    assert os.environ["CUPY_TF32"] == "0"
    theirs, ours = (train(NETS["lenet"](), kernels, "float32", 1) for kernels in (numpy_set, found))
    assert ours[0] == pytest.approx(theirs[0], rel=1e-3)


def test_an_old_card_is_fine_with_an_old_cuda(monkeypatch):
    put_in_cupys_place(monkeypatch, LazyCupy(capability="60", version=12090))
    assert load.why_not() is None


def no_driver():
    raise RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version")


@pytest.mark.parametrize(
    ("cupy", "says"),
    [
        (SimpleNamespace(is_available=lambda: False), "no GPU or no driver"),
        (SimpleNamespace(is_available=no_driver), "InsufficientDri"),
        (LazyCupy(capability="70"), "capability 7.0, which CUDA 13 no longer compiles for: pip uninstall cupy-cuda13x"),
    ],
)
def test_without_a_gpu_the_cpu_is_used_and_one_line_says_so(monkeypatch, capsys, cupy, says):
    put_in_cupys_place(monkeypatch, cupy)
    assert kernel_set(quiet=True).name == "numpy"
    assert capsys.readouterr().err == ""
    assert kernel_set().name == "numpy"
    said = capsys.readouterr().err
    assert says in said
    assert said.startswith("mgwfbp: ")
    assert said.endswith("; using the CPU\n")
    assert said.count("\n") == 1
    with pytest.raises(UserError, match="kernel set cupy: .*; run on a GPU node"):
        kernel_set("cupy")
    monkeypatch.setenv("MGWFBP_KERNELS", "cupy")
    with pytest.raises(UserError, match="kernel set cupy"):
        kernel_set()


def test_mistakes_in_the_choice_are_named(monkeypatch):
    with pytest.raises(UserError, match="known are cupy, fast, numpy"):
        kernel_set("cupi")
    with pytest.raises(UserError, match="unknown math 'bf16': known are fp32, tf32"):
        load.load("bf16")
    monkeypatch.setattr("mgwfbp.kernels.gpu.load.find_spec", lambda name: None)
    with pytest.raises(UserError, match="CuPy is not installed"):
        kernel_set("cupy")


def test_images_are_normalised_on_the_device_to_the_same_bits():
    images = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 3), np.uint8)
    inputs = Inputs((5, 4, 3), np.array([101.3, 99.9, 3.1]), np.array([7.7, 51.0, 33.3]), ())
    for dtype in ("float32", "float64"):
        ours = inputs.normalised(to_device(images), dtype)
        assert np.array_equal(to_host(ours), inputs.normalised(images, dtype))
        assert ours.dtype == dtype


def test_the_cpu_sets_do_not_import_cupy():
    code = "import sys; from mgwfbp.kernels.gpu import cudnn, load; "
    code += "from mgwfbp.kernels import kernel_set; kernel_set('numpy'); "
    code += "sys.exit(bool({'cupy', 'cudnn'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
