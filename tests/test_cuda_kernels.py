"""The GPU kernels without a GPU: their sources for every architecture, and each primitive compiled for the host."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

from mgwfbp.kernels import Kernels
from mgwfbp.kernels.gpu import cupy_set, gemm_conv, sources
from mgwfbp.net.layers import AvgPool2d
from tests import cuda_on_host
from tests.cuda_on_host import DEVICE, TOLERANCE, launch, random, to_device, to_host
from tests.torch_reference import distance

numpy_set = Kernels()

ARCHITECTURES = (75, 80, 86, 89, 90)


@pytest.mark.parametrize("element", ["float", "double"])
def test_every_source_compiles_for_every_architecture(element, tmp_path):
    source = "\n".join(sources.source(family) for family in sources.FAMILIES)
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


@pytest.fixture(params=["as on a GPU", "few threads", "last thread first"])
def threads(request, monkeypatch):
    """Also with so few threads that every loop in every kernel is taken, and in the other order."""
    if request.param == "few threads":
        monkeypatch.setattr(sources, "THREADS", 7)
        monkeypatch.setattr(sources, "MOST_BLOCKS", 6)
        monkeypatch.setattr(sources, "MOST_ROWS", 2)
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


def test_a_call_that_does_not_fit_the_declaration_is_refused():
    x = to_device(np.ones((4, 6), np.float32))
    with pytest.raises(TypeError, match="kernel relu takes 3 arguments, got 2"):
        launch("relu", np.float32, 24, x, x)
    with pytest.raises(TypeError, match="kernel relu: y must be a contiguous array of float32, got float64"):
        launch("relu", np.float32, 24, x, to_device(np.ones((4, 6))), 24)
    with pytest.raises(TypeError, match="x must be a contiguous array"):
        launch("relu", np.float32, 12, x[:, ::2], x, 12)


def test_grids():
    assert sources.grid(1) == (1, 1)
    assert sources.grid(0, 0) == (1, 1)  # CUDA refuses an empty grid
    assert sources.grid(10**12) == (sources.MOST_BLOCKS, 1)
    assert sources.grid(1000, 10**6) == (1, sources.MOST_ROWS)
    assert sources.grid(1000, 100) == (4, 100)
