"""The GPU kernel set without a GPU: its sources for every architecture, its code on kernels compiled for the host."""

from __future__ import annotations

import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mgwfbp.arena import Arena, LayerSpec
from mgwfbp.errors import UserError
from mgwfbp.fusion import fuse
from mgwfbp.kernels import cuda_sources, cudnn, cupy_set, gemm_conv, kernel_set, numpy_set
from mgwfbp.kernels.cupy_set import CupySet
from mgwfbp.layers import LRN, AvgPool2d, Conv2d, Dropout, Flatten, GlobalAvgPool, Linear, MaxPool2d, PReLU, Step
from mgwfbp.models import build
from mgwfbp.network import Network
from mgwfbp.training.optimizer import SGD
from tests import cuda_on_host
from tests.cuda_on_host import launch, to_device, to_host, xp
from tests.test_layers import CASES
from tests.torch_reference import distance

ARCHITECTURES = (75, 80, 86, 89, 90)
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}
DEVICE = CupySet(xp, launch)


@pytest.mark.parametrize("element", ["float", "double"])
def test_every_source_compiles_for_every_architecture(element, tmp_path):
    source = "\n".join(cuda_sources.source(family) for family in cuda_sources.FAMILIES)
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        (tmp_path / "kernels.cu").write_text(source, "utf-8")
        # One pass of the front end serves all: nothing in the sources asks for the architecture.
        chosen = ARCHITECTURES if element == "float" else (ARCHITECTURES[0], ARCHITECTURES[-1])
        codes = ",".join(f"sm_{architecture}" for architecture in chosen)
        command = [nvcc, "-fatbin", f"-DELEMENT={element}", "-std=c++17", "-Werror=all-warnings"]
        done = subprocess.run(
            [
                *command,
                f"-gencode=arch=compute_{ARCHITECTURES[0]},code=[{codes}]",
                "kernels.cu",
                "-o",
                "kernels.fatbin",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return
    nvrtc = pytest.importorskip(
        "cupy_backends.cuda.libs.nvrtc", reason="neither nvcc nor NVRTC (mgwfbp[cuda13]) is here"
    )
    for architecture in ARCHITECTURES:
        program = nvrtc.createProgram(source, "kernels.cu", (), ())
        try:
            nvrtc.compileProgram(program, (f"-DELEMENT={element}", "--std=c++17", f"-arch=sm_{architecture}"))
        finally:
            log = nvrtc.getProgramLog(program)
            nvrtc.destroyProgram(program)
        assert not log.strip("\0")


def compare(name, dtype, *arguments, tolerance=None, **options):
    """One primitive on both sets: the same arguments, arrays on the device for one of them."""
    theirs = getattr(numpy_set, name)(*arguments, **options)
    on_device = [to_device(a.copy()) if isinstance(a, np.ndarray) and a.ndim else a for a in arguments]
    ours = getattr(DEVICE, name)(*on_device, **options)
    pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
    for one, other in pairs:
        one = to_host(one)
        assert (one.shape, one.dtype) == (np.shape(other), np.dtype(dtype))
        assert distance(one, other) < (tolerance or TOLERANCE[dtype]), name
    return theirs


def random(dtype, *shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(params=["as on a GPU", "few threads", "last thread first"])
def threads(request, monkeypatch):
    """Also with so few threads that every loop in every kernel is taken, and in the other order."""
    if request.param == "few threads":
        monkeypatch.setattr(cuda_sources, "THREADS", 7)
        monkeypatch.setattr(cuda_sources, "MOST_BLOCKS", 6)
        monkeypatch.setattr(cuda_sources, "MOST_ROWS", 2)
        monkeypatch.setattr(cupy_set, "MANY_THREADS", 64)
        monkeypatch.setattr(cupy_set, "SUM_ROWS", 5)
        monkeypatch.setattr(cupy_set, "FEW_LANES", 3)
        monkeypatch.setattr(gemm_conv, "COLUMN_BYTES", 2000)
    monkeypatch.setattr(cuda_on_host, "last_first", request.param == "last thread first")


@pytest.mark.parametrize("shape", [(3, 5, 7, 4), (2, 3, 1, 1), (5, 13), (1000,)])
def test_elements(shape, dtype, threads):
    x, y = random(dtype, *shape), random(dtype, *shape, seed=1)
    compare("relu", dtype, x)
    compare("relu_gradient", dtype, np.maximum(x, 0), y)
    for relu in (False, True):
        compare("add", dtype, x, y, relu)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_sgd(dtype, nesterov, decay, threads):
    arrays = [random(dtype, 1001, seed=seed) for seed in range(3)]
    on_device = [to_device(array.copy()) for array in arrays]
    for _ in range(3):
        numpy_set.sgd_update(*arrays, 0.1, 0.9, decay, nesterov)
        DEVICE.sgd_update(*on_device, 0.1, 0.9, decay, nesterov)
    for one, other in zip(on_device, arrays, strict=True):
        assert distance(to_host(one), other) < TOLERANCE[dtype]


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_the_loss(dtype, kind, threads):
    logits, labels = random(dtype, 6, 10) * 30, np.array([0, 9, 3, 3, 1, 7], kind)
    compare("softmax_cross_entropy", dtype, logits, labels)
    losses, _ = DEVICE.softmax_cross_entropy(to_device(logits), to_device(np.array([0, 10, -1, 1, 2, 3])))
    assert np.array_equal(np.isnan(to_host(losses)), [False, True, True, False, False, False])


WINDOWS = {  # x, kernel, stride, pad, ceil
    "plain": ((2, 6, 8, 3), 2, 2, 0, False),
    "odd": ((3, 7, 5, 4), 3, 2, 1, False),
    "ceil": ((2, 8, 6, 3), 3, 2, 0, True),
    "ceil and pad": ((2, 5, 6, 2), 2, 3, 1, True),
    "stride over kernel": ((1, 8, 8, 2), 2, 3, 0, False),
    "rectangular": ((2, 9, 7, 1), (3, 2), (1, 2), (1, 0), True),
    "all of it": ((2, 5, 4, 5), (5, 4), 1, 0, False),
    "one channel": ((4, 7, 7, 1), 3, 1, 1, False),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_pooling(name, dtype, threads):
    shape, kernel, stride, pad, ceil = WINDOWS[name]
    layer = AvgPool2d(kernel, stride=stride, pad=pad, ceil=ceil)
    layer.connect(shape[1:])
    window, size = (layer.kernel, layer.stride, layer.pad), layer.size
    x, dy = random(dtype, *shape), random(dtype, shape[0], *size, shape[3])
    for values in (x, np.maximum(x, 0), np.zeros_like(x)):  # ties: the first of the largest gets the gradient
        y = compare("max_pool", dtype, values, *window, size)
        compare("max_pool_gradient", dtype, values, y, dy, *window)
    share = layer.shares.astype(dtype)
    compare("average_pool", dtype, x, *window, share)
    compare("average_pool_gradient", dtype, dy, shape, *window, share)


def test_nan_wins_in_pooling_and_passes_relu():
    x = np.ones((1, 4, 4, 3), np.float32)
    x[0, 1, 2, 1] = np.nan
    y = to_host(DEVICE.max_pool(to_device(x), (3, 3), (1, 1), (0, 0), (2, 2)))
    assert np.isnan(y[..., 1]).all()
    assert not np.isnan(y[..., 0]).any()
    assert np.isnan(to_host(DEVICE.relu(to_device(x)))).sum() == 1
    assert np.isnan(to_host(DEVICE.add(to_device(x), to_device(x), True))).sum() == 1


@pytest.mark.parametrize(("size", "beta"), [(5, 0.75), (3, 0.5), (7, 0.75), (1, 1.0)])
@pytest.mark.parametrize("channels", [1, 4, 9])
def test_lrn(size, beta, channels, dtype, threads):
    x, dy = random(dtype, 2, 3, 4, channels), random(dtype, 2, 3, 4, channels, seed=1)
    y, scale = compare("lrn", dtype, x, size, 0.5, beta, 2.0)
    compare("lrn_gradient", dtype, x, y, scale, dy, size, 0.5, beta)


@pytest.mark.parametrize("shape", [(4, 6, 5, 3), (7, 5, 5, 1), (40, 16), (2, 3, 3, 70), (1, 1, 1, 2)])
def test_batch_norm(shape, dtype, threads):
    x, y, dy, more = (random(dtype, *shape, seed=seed) for seed in range(4))
    x += 3
    channel = [random(dtype, shape[-1], seed=seed) for seed in range(5)]
    compare("channel_sums", dtype, x)
    mean, variance = compare("channel_moments", dtype, x)
    inverse_std = (1 / np.sqrt(variance + 1e-5)).astype(dtype)
    for relu in (False, True):
        for added in (None, more):
            compare("batch_norm", dtype, x, mean, inverse_std, *channel[:2], added, relu)
        compare("batch_norm_sums", dtype, x, y, dy, mean, inverse_std, relu, tolerance=TOLERANCE[dtype] * 5)
        compare("batch_norm_gradient", dtype, x, y, dy, mean, inverse_std, *channel[2:], relu)


def test_moments_far_from_zero_and_over_many_rows():
    """In float32 a running sum would be off by 7e-3, and mean(x²) − mean² by more than the variance itself."""
    x = (1000 + np.random.default_rng(0).normal(size=(40_000, 3))).astype(np.float32)
    mean, variance = (to_host(value) for value in DEVICE.channel_moments(to_device(x)))
    exact = x.astype(float)
    assert np.allclose(mean, exact.mean(0), rtol=1e-7)
    assert np.allclose(variance, exact.var(0), rtol=1e-5)
    assert np.allclose(to_host(DEVICE.channel_sums(to_device(x))), exact.sum(0), rtol=1e-6)


CONVOLUTIONS = {  # x, kernel, out, stride, pad, groups
    "3x3": ((3, 7, 6, 4), (3, 3), 5, (1, 1), (1, 1), 1),
    "stride": ((2, 9, 8, 3), (3, 3), 4, (2, 2), (1, 1), 1),
    "stride over kernel": ((2, 8, 9, 2), (2, 2), 3, (3, 3), (0, 0), 1),
    "rectangular": ((2, 5, 9, 2), (1, 3), 4, (1, 2), (0, 1), 1),
    "1x1": ((2, 4, 5, 6), (1, 1), 3, (1, 1), (0, 0), 1),
    "1x1 stride": ((2, 5, 5, 3), (1, 1), 4, (2, 2), (0, 0), 1),
    "pad over kernel": ((1, 3, 3, 3), (1, 1), 2, (1, 1), (2, 2), 1),
    "groups": ((2, 5, 5, 4), (3, 3), 6, (1, 1), (1, 1), 2),
    "groups stride": ((2, 7, 7, 6), (3, 3), 6, (2, 2), (0, 0), 3),
    "depthwise": ((2, 5, 5, 4), (3, 3), 4, (1, 1), (1, 1), 4),
    "groups 1x1": ((2, 4, 4, 4), (1, 1), 6, (1, 1), (0, 0), 2),
    "one channel": ((2, 6, 6, 1), (5, 5), 1, (1, 1), (2, 2), 1),
}


def check_convolution(kernels, name, dtype):
    shape, kernel, out, stride, pad, groups = CONVOLUTIONS[name]
    x, weight, bias = random(dtype, *shape), random(dtype, *kernel, shape[3] // groups, out), random(dtype, out)
    way = stride, pad, groups
    for b in (None, bias):
        y = numpy_set.conv2d(x, weight, b, *way)
        ours = kernels.conv2d(to_device(x), to_device(weight), None if b is None else to_device(b), *way)
        assert distance(to_host(ours), y) < TOLERANCE[dtype]
    dy, dw = random(dtype, *y.shape, seed=1), np.empty_like(weight)
    numpy_set.conv2d_weight_gradient(x, dy, dw, *way)
    ours = to_device(np.full_like(weight, np.nan))
    kernels.conv2d_weight_gradient(to_device(x), to_device(dy), ours, *way)
    assert distance(to_host(ours), dw) < TOLERANCE[dtype]
    dx = kernels.conv2d_input_gradient(to_device(dy), to_device(weight), x.shape, *way)
    assert distance(to_host(dx), numpy_set.conv2d_input_gradient(dy, weight, x.shape, *way)) < TOLERANCE[dtype]


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_by_products(name, dtype, threads):
    check_convolution(DEVICE, name, dtype)


class PlanByTorch:
    """Stands in for a cuDNN plan: reads its arrays as the graph describes them, NCHW with strides, weights OIHW."""

    def __init__(self, operation, shape):
        self.operation, self.shape = operation, shape

    def run(self, first, second, result):
        shape, sizes = self.shape, {"x": cudnn._nhwc(self.shape.x), "y": cudnn._nhwc(self.shape.y)}
        height, width, c, o = shape.weight
        sizes["weight"] = ((o, c, height, width), (height * width * c, 1, width * c, c))
        names = {
            cudnn.FORWARD: ("x", "weight", "y"),
            cudnn.INPUT_GRADIENT: ("y", "weight", "x"),
            cudnn.WEIGHT_GRADIENT: ("x", "y", "weight"),
        }[self.operation]
        arrays = []
        for array, (size, strides) in zip((first, second, result), (sizes[name] for name in names), strict=True):
            assert array.flags.c_contiguous
            assert array.size == np.prod(size)
            steps = [step * array.itemsize for step in strides]
            arrays.append(np.lib.stride_tricks.as_strided(to_host(array), size, steps))
        one, two = (torch.from_numpy(array.copy()) for array in arrays[:2])
        options = {"stride": shape.stride, "padding": shape.pad, "groups": shape.groups}
        if self.operation == cudnn.FORWARD:
            arrays[2][...] = torch.nn.functional.conv2d(one, two, **options).numpy()
        elif self.operation == cudnn.INPUT_GRADIENT:
            arrays[2][...] = torch.nn.grad.conv2d_input(arrays[2].shape, two, one, **options).numpy()
        else:
            arrays[2][...] = torch.nn.grad.conv2d_weight(one, arrays[2].shape, two, **options).numpy()


def with_cudnn(plan=PlanByTorch):
    products = gemm_conv.GemmConvolutions(xp, launch)
    return CupySet(xp, launch, cudnn.CudnnConvolutions(xp, launch, plan, products))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_by_plans(name, dtype):
    """All but cuDNN itself: the order of the arrays, the weights' order, and which convolutions it gets."""
    asked = []

    def plan(operation, shape):
        asked.append((operation, shape))
        return PlanByTorch(operation, shape)

    check_convolution(with_cudnn(plan), name, dtype)
    assert {operation for operation, _ in asked} == (
        set() if name == "1x1" else {cudnn.FORWARD, cudnn.INPUT_GRADIENT, cudnn.WEIGHT_GRADIENT}
    )
    assert len({shape for _, shape in asked}) <= 1
    check_convolution(with_cudnn(lambda operation, shape: None), name, dtype)  # cuDNN has no plan: products


OPERATIONS = (cudnn.FORWARD, cudnn.INPUT_GRADIENT, cudnn.WEIGHT_GRADIENT)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_cudnn_graphs_are_valid(name, dtype):
    """Needs nvidia-cudnn-frontend, but no GPU."""
    frontend = pytest.importorskip("cudnn", reason="nvidia-cudnn-frontend is not installed (mgwfbp[cuda13])")
    try:
        frontend.backend_version()
    except RuntimeError as error:
        pytest.skip(f"the library of cuDNN is not found: {error}")
    x, kernel, out, stride, pad, groups = CONVOLUTIONS[name]
    weight = (*kernel, x[3] // groups, out)
    for math in cupy_set.MATHS:
        assert cudnn.barred_notes(math)
        for operation in OPERATIONS:
            assert cudnn.graph(operation, cudnn.Shape(x, weight, stride, pad, groups, dtype, math)) is not None


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
    net = Network("zoo", (13, 11, 3))
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
    sgd = SGD(net.arena, kernels, lr=0.01, momentum=0.9, weight_decay=1e-3, nesterov=True)
    losses, right = [], []
    for iteration in range(iterations):
        images = random(dtype, 4, *net.input.shape, seed=iteration)
        loss, correct = net.forward(images, np.arange(4) % net.classes, Step(iteration=iteration))
        net.backward()
        for part in net.arena.layer_slices:
            sgd.update(part)
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
        net = Network("two ways", (4, 4, 3))
        x = net.add("conv", Conv2d(5, 3, pad=1), net.input)
        pooled, flat = net.add("pool", GlobalAvgPool(), x), net.add("flat", Flatten(), x)
        heads = [net.add(name, Linear(2), node) for name, node in (("one", flat), ("two", pooled))]
        net.finish(heads[1], [(heads[0], 1.0)]).allocate(dtype=np.float64, kernels=kernels)
        net.forward(random("float64", 2, 4, 4, 3), np.array([0, 1]), Step())
        net.backward()
        gradients.append(net.arena.gradients.view(np.ndarray))
    assert distance(gradients[1], gradients[0]) < 1e-12


def test_a_call_that_does_not_fit_the_declaration_is_refused():
    x = to_device(np.ones((4, 6), np.float32))
    with pytest.raises(TypeError, match="kernel relu takes 3 arguments, got 2"):
        launch("relu", np.float32, 24, x, x)
    with pytest.raises(TypeError, match="kernel relu: y must be a contiguous array of float32, got float64"):
        launch("relu", np.float32, 24, x, to_device(np.ones((4, 6))), 24)
    with pytest.raises(TypeError, match="x must be a contiguous array"):
        launch("relu", np.float32, 12, x[:, ::2], x, 12)


def test_grids():
    assert cuda_sources.grid(1) == (1, 1)
    assert cuda_sources.grid(0, 0) == (1, 1)  # CUDA refuses an empty grid
    assert cuda_sources.grid(10**12) == (cuda_sources.MOST_BLOCKS, 1)
    assert cuda_sources.grid(1000, 10**6) == (1, cuda_sources.MOST_ROWS)
    assert cuda_sources.grid(1000, 100) == (4, 100)


def fake_cupy(monkeypatch, available):
    """CuPy as it is on a machine without a driver."""
    for module in ("mgwfbp.kernels", "mgwfbp.kernels.cupy_set"):  # and no numba, which takes a second to load
        monkeypatch.setattr(f"{module}.find_spec", lambda name: object() if name == "cupy" else None)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(is_available=available))
    monkeypatch.setattr("mgwfbp.kernels._say_once", lambda text: sys.stderr.write(text + "\n"))
    monkeypatch.delenv("MGWFBP_KERNELS", raising=False)


def no_driver():
    raise RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version")


@pytest.mark.parametrize(
    ("available", "says"), [(lambda: False, "no GPU or no driver"), (no_driver, "InsufficientDri")]
)
def test_without_a_gpu_the_cpu_is_used_and_one_line_says_so(monkeypatch, capsys, available, says):
    fake_cupy(monkeypatch, available)
    assert kernel_set(quiet=True).name == "numpy"
    assert capsys.readouterr().err == ""
    assert kernel_set().name == "numpy"
    said = capsys.readouterr().err
    assert says in said
    assert said.startswith("mgwfbp: CuPy")
    assert said.endswith("; using the CPU\n")
    assert said.count("\n") == 1
    with pytest.raises(UserError, match="kernel set cupy: CuPy .*; run on a GPU node"):
        kernel_set("cupy")
    monkeypatch.setenv("MGWFBP_KERNELS", "cupy")
    with pytest.raises(UserError, match="kernel set cupy"):
        kernel_set()


def test_mistakes_in_the_choice_are_named(monkeypatch):
    with pytest.raises(UserError, match="known are cupy, fast, numpy"):
        kernel_set("cupi")
    with pytest.raises(UserError, match="unknown math 'bf16': known are fp32, tf32"):
        cupy_set.load("bf16")
    monkeypatch.setattr("mgwfbp.kernels.cupy_set.find_spec", lambda name: None)
    with pytest.raises(UserError, match="CuPy is not installed"):
        kernel_set("cupy")


def test_the_cpu_sets_do_not_import_cupy():
    code = "import sys; from mgwfbp.kernels import cupy_set, cudnn, kernel_set; kernel_set('numpy'); "
    code += "sys.exit(bool({'cupy', 'cudnn'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
