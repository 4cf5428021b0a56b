"""Every primitive and a training run of the cupy set against NumPy: on a GPU, or where there is none on a stand-in."""

from __future__ import annotations

import numpy as np
import pytest

from mgwfbp.kernels import Kernels
from mgwfbp.kernels.gpu.load import why_not
from mgwfbp.models import build
from mgwfbp.net import fuse, to_host
from mgwfbp.net.layers import AvgPool2d, Step
from mgwfbp.optim.sgd import SGD

pytestmark = pytest.mark.all  # jobs/gpu_check.sh runs them on a card, make test-all on the stand-in
numpy_set = Kernels()
on_a_card = pytest.mark.skipif(why_not() is not None, reason=f"needs a GPU: {why_not()}")
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


def distance(ours, theirs):
    """Norm-wise relative difference. (tests/torch_reference.py has it, too, but a GPU node may have no torch.)"""
    return float(np.linalg.norm(ours - theirs) / max(np.linalg.norm(theirs), 1e-30))


def random(dtype, *shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def compare(gpu, name, *arguments):
    """One primitive on both sets, with the same arguments; the results agree in shape, dtype and value."""
    theirs = getattr(numpy_set, name)(*arguments)
    on_device = [gpu.xp.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
    ours = getattr(gpu, name)(*on_device)
    pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
    for one, other in pairs:
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        factor = 5 if "norm" in name or "conv" in name else 1  # cuDNN may take Winograd's way
        assert distance(one.get(), other) < TOLERANCE[other.dtype.name] * factor, name
    return theirs


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(3, 7, 9, 5), (16, 28, 28, 64), (5, 13, 13, 1), (2, 3, 3, 2048)])
def test_every_primitive(gpu, shape, dtype):
    x, y, dy, more = (random(dtype, *shape, seed=seed) for seed in range(4))
    channel = [random(dtype, shape[-1], seed=seed) for seed in range(5)]
    compare(gpu, "relu", x)
    compare(gpu, "relu_gradient", y, dy)
    compare(gpu, "channel_sums", x + 1)
    mean, variance = compare(gpu, "channel_moments", x + 3)
    inverse_std = (1 / np.sqrt(variance + 1e-5)).astype(dtype)
    for relu in (False, True):
        compare(gpu, "add", x, y, relu)
        compare(gpu, "batch_norm", x + 3, mean, inverse_std, *channel[:2], more, relu)
        compare(gpu, "batch_norm", x + 3, mean, inverse_std, *channel[:2], None, relu)
        compare(gpu, "batch_norm_sums", x + 3, y, dy, mean, inverse_std, relu)
        compare(gpu, "batch_norm_gradient", x + 3, y, dy, mean, inverse_std, *channel[2:], relu)
    z, scale = compare(gpu, "lrn", x, 5, 0.5, 0.75, 1.0)
    compare(gpu, "lrn_gradient", x, z, scale, dy, 5, 0.5, 0.75)
    compare(gpu, "softmax_cross_entropy", random(dtype, 64, 1000) * 10, np.arange(64) % 1000)
    pool = AvgPool2d(3, stride=2, pad=1, ceil=True)
    pool.connect(shape[1:])
    window, share = (pool.kernel, pool.stride, pool.pad), pool.shares.astype(dtype)
    for values in (x, np.maximum(x, 0)):
        pooled = compare(gpu, "max_pool", values, *window, pool.size)
        compare(gpu, "max_pool_gradient", values, pooled, random(dtype, *pooled.shape), *window)
    compare(gpu, "average_pool", x, *window, share)
    compare(gpu, "average_pool_gradient", random(dtype, *pooled.shape), shape, *window, share)


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd(gpu, nesterov):
    arrays = [random("float32", 100_001, seed=seed) for seed in range(3)]
    on_device = [gpu.xp.asarray(array) for array in arrays]
    numpy_set.sgd_update(*arrays, 0.1, 0.9, 0.01, nesterov)
    gpu.sgd_update(*on_device, 0.1, 0.9, 0.01, nesterov)
    for one, other in zip(on_device, arrays, strict=True):
        assert distance(one.get(), other) < 1e-6


def test_products_in_every_storage_order(gpu):
    a, b = random("float32", 37, 53), random("float32", 53, 29)
    for left in (gpu.xp.asarray(a), gpu.xp.asarray(a.T.copy()).T):
        for right in (gpu.xp.asarray(b), gpu.xp.asarray(b.T.copy()).T):
            out = gpu.xp.empty((37, 29), "float32")
            assert distance(gpu.matmul(left, right).get(), a @ b) < 1e-6
            gpu.matmul(left, right, out)
            assert distance(out.get(), a @ b) < 1e-6


def test_products_are_fp32(gpu):
    """Of a size for which there are kernels on tensor cores, which round to TF32: 1e-3."""
    a, b = random("float32", 512, 512), random("float32", 512, 512, seed=1)
    exact = a.astype(float) @ b.astype(float)
    assert distance(gpu.matmul(gpu.xp.asarray(a), gpu.xp.asarray(b)).get(), exact) < 1e-6


@on_a_card
def test_convolutions_are_fp32(gpu):
    """Winograd's way included, whose rounding is a tenth of TF32's."""
    x, weight = random("float32", 32, 56, 56, 64), random("float32", 3, 3, 64, 64)
    way = ((1, 1), (1, 1), 1)
    exact = numpy_set.conv2d(x.astype(float), weight.astype(float), None, *way)
    found = gpu.conv2d(gpu.xp.asarray(x), gpu.xp.asarray(weight), None, *way)
    assert distance(found.get(), exact) < 5e-5


@on_a_card
def test_work_is_put_into_a_stream_of_ours(gpu):
    import cupy

    assert cupy.cuda.get_current_stream() != cupy.cuda.Stream.null


@pytest.mark.parametrize(
    ("shape", "kernel", "out", "stride", "pad", "groups"),
    [
        ((4, 28, 28, 1), (5, 5), 20, (1, 1), (0, 0), 1),
        ((4, 32, 32, 16), (3, 3), 32, (2, 2), (1, 1), 1),
        ((2, 56, 56, 64), (1, 1), 32, (1, 1), (0, 0), 1),
        ((2, 56, 56, 64), (1, 1), 32, (2, 2), (0, 0), 1),
        ((2, 64, 64, 3), (7, 7), 64, (2, 2), (3, 3), 1),
        ((2, 27, 27, 96), (5, 5), 256, (1, 1), (2, 2), 2),
        ((2, 17, 17, 8), (1, 7), 12, (1, 1), (0, 3), 1),
    ],
)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_convolutions(gpu, shape, kernel, out, stride, pad, groups, dtype):
    way = stride, pad, groups
    x, weight, bias = random(dtype, *shape), random(dtype, *kernel, shape[3] // groups, out), random(dtype, out)
    y = compare(gpu, "conv2d", x, weight, bias, *way)
    dy, dw = random(dtype, *y.shape, seed=1), np.empty_like(weight)
    compare(gpu, "conv2d_input_gradient", dy, weight, x.shape, *way)
    numpy_set.conv2d_weight_gradient(x, dy, dw, *way)
    ours = gpu.xp.empty(weight.shape, dtype)
    gpu.conv2d_weight_gradient(gpu.xp.asarray(x), gpu.xp.asarray(dy), ours, *way)
    assert distance(ours.get(), dw) < TOLERANCE[dtype] * 5


def losses_of(kernels, name, shape, iterations=20):
    net = fuse(build(name, shape)).allocate(seed=1, kernels=kernels)
    sgd = SGD(lr=0.01, momentum=0.9, weight_decay=5e-4).open(net.arena, kernels)
    rng, losses = np.random.default_rng(0), []
    for iteration in range(iterations):
        images = rng.normal(size=(32, *shape)).astype(np.float32)
        loss, _ = net.forward(images, rng.integers(0, 10, 32), Step(iteration=iteration))
        net.backward()
        sgd.update([slice(0, len(net.arena.parameters))])
        losses.append(to_host(loss))
    return [float(loss) for loss in losses], net.arena.parameters_sha256()


def test_losses_of_lenet_agree_with_numpys_for_20_iterations(gpu):
    theirs, _ = losses_of(numpy_set, "lenet", (28, 28, 1))
    assert losses_of(gpu, "lenet", (28, 28, 1))[0] == pytest.approx(theirs, abs=1e-3)


def test_a_run_repeats_to_the_last_bit(gpu):
    one, other = (losses_of(gpu, "resnet20", (16, 16, 3), 3) for _ in range(2))
    assert one == other
