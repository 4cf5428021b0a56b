"""Every layer's forward and backward against PyTorch in float64 and float32, and against central differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mgwfbp.errors import UserError
from mgwfbp.kernels import kernel_set
from mgwfbp.kernels.numpy import conv as numpy_conv
from mgwfbp.net import Arena, LayerSpec, Net
from mgwfbp.net.layers import (
    LRN,
    Add,
    AvgPool2d,
    BatchNorm2d,
    Concat,
    Conv2d,
    Dropout,
    Flatten,
    GlobalAvgPool,
    Linear,
    MaxPool2d,
    PadShortcut,
    PReLU,
    ReLU,
    Sigmoid,
    Softmax,
    SoftmaxCrossEntropy,
    Step,
    Tanh,
)
from tests.torch_reference import NHWC_TO_NCHW, distance, from_torch, layout_of, to_torch

f = torch.nn.functional


def bind(layer, *shapes, dtype=np.float64, seed=0, kernels=None):
    """Connect `layer` to inputs of `shapes`, give it an arena of its own with random values."""
    layer.kernels = kernels or kernel_set()
    layer.connect(*shapes)
    arena = Arena([LayerSpec("layer", [(t.name, t.shape) for t in layer.parameters])], dtype)
    rng = np.random.default_rng(seed)
    for name, (parameter, gradient) in arena.views(0).items():
        parameter[...] = rng.normal(size=parameter.shape)
        gradient[...] = np.nan  # backward must write every element, not add to it
        setattr(layer, name, parameter)
        setattr(layer, f"d_{name}", gradient)
    for tensor in layer.state:
        setattr(layer, tensor.name, tensor.initial(rng, tensor.shape).astype(dtype))
    return layer


# name -> (layer, input shapes, the same in torch: (inputs in torch's layout, parameters by name) -> output)
CASES = {
    "linear": (lambda: Linear(5), [(7,)], lambda x, p: f.linear(x, p["weight"], p["bias"])),
    "conv": (lambda: Conv2d(4, 3), [(6, 5, 3)], lambda x, p: f.conv2d(x, p["weight"], p["bias"])),
    "conv pad": (lambda: Conv2d(4, 3, pad=1), [(6, 5, 3)], lambda x, p: f.conv2d(x, p["weight"], p["bias"], padding=1)),
    "conv pad over kernel": (
        lambda: Conv2d(2, 1, pad=2),
        [(3, 3, 3)],
        lambda x, p: f.conv2d(x, p["weight"], p["bias"], padding=2),
    ),
    "conv stride": (
        lambda: Conv2d(4, 3, stride=2, pad=1, bias=False),
        [(7, 6, 3)],
        lambda x, p: f.conv2d(x, p["weight"], stride=2, padding=1),
    ),
    "conv stride over kernel": (
        lambda: Conv2d(4, 2, stride=3),
        [(8, 9, 2)],
        lambda x, p: f.conv2d(x, p["weight"], p["bias"], stride=3),
    ),
    "conv 1x1": (lambda: Conv2d(4, 1), [(5, 4, 3)], lambda x, p: f.conv2d(x, p["weight"], p["bias"])),
    "conv 1x1 stride": (
        lambda: Conv2d(4, 1, stride=2),
        [(5, 4, 3)],
        lambda x, p: f.conv2d(x, p["weight"], p["bias"], stride=2),
    ),
    "conv groups": (
        lambda: Conv2d(6, 3, pad=1, groups=2),
        [(5, 5, 4)],
        lambda x, p: f.conv2d(x, p["weight"], p["bias"], padding=1, groups=2),
    ),
    "conv groups stride": (
        lambda: Conv2d(6, 3, stride=2, groups=3),
        [(7, 7, 3)],
        lambda x, p: f.conv2d(x, p["weight"], p["bias"], stride=2, groups=3),
    ),
    "conv rectangular": (
        lambda: Conv2d(4, (1, 3), stride=(1, 2), pad=(0, 1)),
        [(4, 7, 2)],
        lambda x, p: f.conv2d(x, p["weight"], p["bias"], stride=(1, 2), padding=(0, 1)),
    ),
    "max pool": (lambda: MaxPool2d(2), [(6, 7, 3)], lambda x, p: f.max_pool2d(x, 2)),
    "max pool overlapping": (
        lambda: MaxPool2d(3, stride=2, pad=1),
        [(7, 6, 3)],
        lambda x, p: f.max_pool2d(x, 3, stride=2, padding=1),
    ),
    "max pool stride over kernel": (
        lambda: MaxPool2d(2, stride=3),
        [(8, 8, 2)],
        lambda x, p: f.max_pool2d(x, 2, stride=3),
    ),
    "max pool ceil": (
        lambda: MaxPool2d(3, stride=2, ceil=True),
        [(8, 6, 3)],
        lambda x, p: f.max_pool2d(x, 3, stride=2, ceil_mode=True),
    ),
    "max pool ceil pad": (
        lambda: MaxPool2d(2, stride=3, pad=1, ceil=True),
        [(5, 6, 2)],
        lambda x, p: f.max_pool2d(x, 2, stride=3, padding=1, ceil_mode=True),
    ),
    "avg pool ceil": (
        lambda: AvgPool2d(3, stride=2, pad=1, ceil=True),
        [(8, 6, 3)],
        lambda x, p: f.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    ),
    "avg pool without pad": (
        lambda: AvgPool2d(3, stride=2, pad=1, ceil=True, include_pad=False),
        [(8, 7, 3)],
        lambda x, p: f.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    ),
    "lrn": (lambda: LRN(5, alpha=0.5), [(3, 4, 7)], lambda x, p: f.local_response_norm(x, 5, 0.5, 0.75, 1.0)),
    "lrn wider than the channels": (
        lambda: LRN(7, alpha=0.5, beta=0.5, k=2.0),
        [(3, 4, 2)],
        lambda x, p: f.local_response_norm(x, 7, 0.5, 0.5, 2.0),
    ),
    "prelu": (lambda: PReLU(), [(5, 4, 3)], lambda x, p: f.prelu(x, p["slope"])),
    "sigmoid": (lambda: Sigmoid(), [(5, 4, 3)], lambda x, p: torch.sigmoid(x)),
    "tanh": (lambda: Tanh(), [(5, 4, 3)], lambda x, p: torch.tanh(x)),
    "softmax": (lambda: Softmax(), [(7,)], lambda x, p: torch.softmax(x, 1)),
    "avg pool": (lambda: AvgPool2d(2), [(6, 7, 3)], lambda x, p: f.avg_pool2d(x, 2)),
    "avg pool overlapping": (
        lambda: AvgPool2d(3, stride=2, pad=1),
        [(7, 6, 3)],
        lambda x, p: f.avg_pool2d(x, 3, stride=2, padding=1),
    ),
    "global avg pool": (lambda: GlobalAvgPool(), [(5, 4, 3)], lambda x, p: x.mean((2, 3))),
    "relu": (lambda: ReLU(), [(5, 4, 3)], lambda x, p: f.relu(x)),
    "flatten": (lambda: Flatten(), [(2, 4, 3)], lambda x, p: x.permute(0, 2, 3, 1).flatten(1)),
    "batch norm": (
        lambda: BatchNorm2d(),
        [(5, 4, 3)],
        lambda x, p: f.batch_norm(x, None, None, p["gamma"], p["beta"], training=True),
    ),
    "add": (lambda: Add(), [(3, 4, 2)] * 3, lambda x, p: x[0] + x[1] + x[2]),
    "concat": (lambda: Concat(), [(3, 4, 2), (3, 4, 1), (3, 4, 5)], lambda x, p: torch.cat(x, 1)),
    "pad shortcut": (
        lambda: PadShortcut(6),
        [(5, 4, 2)],
        lambda x, p: f.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2)),
    ),
}


def nchw(array):
    return NHWC_TO_NCHW if array.ndim == 4 else None


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 1e-4)])
@pytest.mark.parametrize("name", CASES)
def test_against_torch(name, dtype, tolerance, batch, kernels):
    make, shapes, reference = CASES[name]
    layer = bind(make(), *shapes, dtype=dtype, kernels=kernels)
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=(batch, *shape)).astype(dtype) for shape in shapes]
    if name == "relu":
        inputs[0][rng.random(inputs[0].shape) < 0.3] = 0  # the corner, where both take the derivative as 0
    y = layer.forward(inputs if len(inputs) > 1 else inputs[0], Step())
    dy = rng.normal(size=y.shape).astype(dtype)
    dx = layer.backward(dy)

    theirs = [to_torch(x, nchw(x)) for x in inputs]
    p = {t.name: to_torch(getattr(layer, t.name), layout_of(getattr(layer, t.name))) for t in layer.parameters}
    out = reference(theirs if len(theirs) > 1 else theirs[0], p)
    out.backward(torch.from_numpy(np.ascontiguousarray(dy if dy.ndim < 4 else dy.transpose(NHWC_TO_NCHW))))
    assert y.dtype == dtype
    assert distance(y, from_torch(out, nchw(y))) < tolerance
    for x, d, t in zip(inputs, dx if len(inputs) > 1 else [dx], theirs, strict=True):
        assert d.dtype == dtype
        assert d.shape == x.shape
        assert distance(d, from_torch(t.grad, nchw(x))) < tolerance
    for tensor, theirs_p in p.items():
        gradient = getattr(layer, f"d_{tensor}")
        assert distance(gradient, from_torch(theirs_p.grad, layout_of(gradient))) < tolerance, tensor


@pytest.mark.parametrize("name", CASES)
def test_against_central_differences(name):
    make, shapes, _ = CASES[name]
    layer = bind(make(), *shapes)
    rng = np.random.default_rng(2)
    inputs = [rng.normal(size=(2, *shape)) for shape in shapes]
    x = inputs if len(inputs) > 1 else inputs[0]
    dy = rng.normal(size=layer.forward(x, Step()).shape)
    dx = layer.backward(dy)
    slopes = list(zip(inputs, dx if len(inputs) > 1 else [dx], strict=True))
    slopes += [(getattr(layer, t.name), getattr(layer, f"d_{t.name}").copy()) for t in layer.parameters]
    for values, gradient in slopes:
        for _ in range(12):
            at = tuple(rng.integers(0, size) for size in values.shape)
            kept, ends = values[at], []
            for h in (1e-6, -1e-6):
                values[at] = kept + h
                ends.append((layer.forward(x, Step()) * dy).sum())
            values[at] = kept
            assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(gradient[at], rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 1e-4)])
def test_softmax_cross_entropy_against_torch(dtype, tolerance, smoothing):
    loss = SoftmaxCrossEntropy(smoothing)
    loss.kernels = kernel_set()
    logits = (np.random.default_rng(0).normal(size=(5, 7)) * 30).astype(dtype)
    labels = np.array([0, 6, 3, 3, 1])
    value, correct = loss.loss(logits, labels, 8)
    theirs = to_torch(logits)
    out = f.cross_entropy(theirs, torch.from_numpy(labels), reduction="sum", label_smoothing=smoothing) / 8
    out.backward()
    assert value == pytest.approx(out.item(), rel=tolerance)
    assert distance(loss.gradient(), from_torch(theirs.grad)) < tolerance
    unsmoothed = f.cross_entropy(theirs, torch.from_numpy(labels), reduction="sum").item() / 8
    assert loss.loss(logits, labels, 8, training=False)[0] == pytest.approx(unsmoothed, rel=tolerance)
    assert correct == (logits.argmax(1) == labels).sum()


def test_softmax_of_huge_logits_does_not_overflow():
    loss = SoftmaxCrossEntropy()
    loss.kernels = kernel_set()
    value, _ = loss.loss(np.array([[1e30, 0.0], [-1e30, 0.0]], np.float32), np.array([0, 1]), 2)
    assert value == 0


def test_first_of_equal_maxima_gets_the_gradient_as_in_torch():
    x = np.zeros((1, 4, 4, 1))
    layer = bind(MaxPool2d(3, stride=1), (4, 4, 1))
    layer.forward(x, Step())
    theirs = to_torch(x, NHWC_TO_NCHW)
    f.max_pool2d(theirs, 3, stride=1).sum().backward()
    assert np.array_equal(layer.backward(np.ones((1, 2, 2, 1))), from_torch(theirs.grad, NHWC_TO_NCHW))


def test_batch_norm_running_statistics_and_evaluation_against_torch():
    layer, theirs = bind(BatchNorm2d(), (5, 4, 3)), torch.nn.BatchNorm2d(3, dtype=torch.float64)
    theirs.weight.data, theirs.bias.data = (torch.from_numpy(a.copy()) for a in (layer.gamma, layer.beta))
    rng = np.random.default_rng(3)
    for _ in range(3):
        x = rng.normal(2, 3, size=(6, 5, 4, 3))
        layer.forward(x, Step())
        theirs(to_torch(x, NHWC_TO_NCHW))
    assert distance(layer.running_mean, theirs.running_mean.numpy()) < 1e-12
    assert distance(layer.running_var, theirs.running_var.numpy()) < 1e-12
    theirs.eval()
    ours = layer.forward(x, Step(training=False))
    assert distance(ours, from_torch(theirs(to_torch(x, NHWC_TO_NCHW)), NHWC_TO_NCHW)) < 1e-12


def test_batch_norm_in_float32_stays_accurate_far_from_zero(kernels):
    rng = np.random.default_rng(4)
    x, dy = (rng.normal(m, 1, size=(8, 64, 64, 4)).astype(np.float32) for m in (10, 0.3))
    results = []
    for dtype in (np.float32, np.float64):
        layer = bind(BatchNorm2d(), (64, 64, 4), dtype=dtype, kernels=kernels)
        y = layer.forward(x.astype(dtype), Step())
        results.append((y, layer.backward(dy.astype(dtype)), layer.d_gamma, layer.d_beta))
    for single, double in zip(*results, strict=True):
        assert distance(single, double) < 1e-4


@pytest.mark.parametrize("name", ["conv pad", "conv stride", "conv groups", "max pool", "batch norm", "relu", "lrn"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_inputs_need_not_be_contiguous(name, dtype, kernels):
    make, (shape,), _ = CASES[name]
    layer = bind(make(), shape, dtype=dtype, kernels=kernels)
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2, *shape[::-1])).astype(dtype).transpose(0, 3, 2, 1)
    y = layer.forward(x, Step())
    dy = rng.normal(size=y.shape[::-1]).astype(dtype).T
    dx = layer.backward(dy)
    assert np.array_equal(layer.forward(np.ascontiguousarray(x), Step()), y)
    assert distance(layer.backward(np.ascontiguousarray(dy)), dx) < (1e-12 if dtype == np.float64 else 1e-6)


def test_a_batch_of_many_chunks_is_the_sum_of_its_samples(monkeypatch):
    layer = bind(Conv2d(3, 3, stride=2, pad=1), (6, 6, 2))
    x, dy = np.random.default_rng(6).normal(size=(7, 6, 6, 2)), np.random.default_rng(7).normal(size=(7, 3, 3, 3))
    whole = [layer.forward(x, Step()), layer.backward(dy), layer.d_weight.copy()]
    monkeypatch.setattr(numpy_conv, "COLUMN_BYTES", 3 * 9 * 18 * 8)  # three samples a chunk, so the last has one
    parts = [layer.forward(x, Step()), layer.backward(dy), layer.d_weight.copy()]
    for one, other in zip(whole, parts, strict=True):
        assert np.allclose(one, other, rtol=1e-12)


def test_dropout_scales_what_it_keeps_and_masks_the_gradient_alike():
    layer = bind(Dropout(0.25), (40, 50, 1))
    x = np.ones((8, 40, 50, 1))
    y = layer.forward(x, Step(seed=1))
    assert set(np.unique(y)) == {0.0, 1 / 0.75}
    assert (y == 0).mean() == pytest.approx(0.25, abs=0.02)
    assert np.array_equal(layer.backward(x), y)
    assert np.array_equal(layer.forward(x, Step(training=False)), x)
    assert np.array_equal(layer.backward(x), x)


def test_dropout_depends_on_the_sample_not_on_the_rank():
    layer = bind(Dropout(0.5), (13,))
    x = np.ones((8, 13))
    whole = layer.forward(x, Step(iteration=5, seed=3)).copy()
    parts = [layer.forward(x[:k], Step(iteration=5, seed=3, first_row=start)) for start, k in ((0, 3), (3, 5))]
    assert np.array_equal(np.concatenate(parts), whole)
    assert not np.array_equal(layer.forward(x, Step(iteration=6, seed=3)), whole)
    layer.index = 1
    assert not np.array_equal(layer.forward(x, Step(iteration=5, seed=3)), whole)


@pytest.mark.parametrize(
    ("layer", "shapes", "says"),
    [
        (Linear(5), [(4, 4, 3)], r"layer Linear \(Linear\): needs a flat input .*, got \(4, 4, 3\)"),
        (Conv2d(4, 5), [(4, 4, 3)], r"at least the window's size \(5, 5\)"),
        (Conv2d(4, 3), [(12,)], r"needs an input of \(height, width, channels\), got \(12,\)"),
        (Conv2d(4, 3, groups=2), [(4, 4, 3)], "divide by its 2 groups, got 3 and 4"),
        (MaxPool2d(3), [(2, 2, 1)], "at least the window's size"),
        (MaxPool2d(2, pad=2), [(4, 4, 1)], "padding of at most half the window"),
        (GlobalAvgPool(), [(4,)], "needs an input of"),
        (Add(), [(1, 2, 3), (1, 2, 4)], "inputs of equal shape"),
        (Add(), [(1, 2, 3)], "two or more inputs"),
        (Concat(), [(1, 2, 3), (2, 2, 3)], "differ in their channels only"),
        (PadShortcut(2), [(4, 4, 3)], "at most 2 channels"),
        (MaxPool2d(3, ceil=True), [(2, 2, 1)], "at least the window's size"),
        (SoftmaxCrossEntropy(), [(4, 4, 3)], r"needs an input of \(classes,\)"),
    ],
)
def test_a_wrong_shape_names_the_layer_what_it_needs_and_what_it_got(layer, shapes, says):
    with pytest.raises(UserError, match=says):
        layer.connect(*shapes)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Conv2d(4, 3, stride=0),
        lambda: Conv2d(4, 3, groups=0),
        lambda: Conv2d(0, 3),
        lambda: Conv2d(4, 3, pad=-1),
        lambda: MaxPool2d(2, stride=0),
        lambda: AvgPool2d(0),
    ],
)
def test_sizes_below_one_are_refused(make):
    with pytest.raises(UserError, match="of at least 1"):
        make()


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_dropout_rates(rate):
    with pytest.raises(UserError, match="a rate of at least 0 and below 1"):
        Dropout(rate)


def test_nan_wins_in_pooling_and_passes_relu(kernels):
    x = np.ones((1, 4, 4, 3), np.float32)
    x[0, 1, 2, 1] = np.nan
    y = kernels.max_pool(x, (3, 3), (1, 1), (0, 0), (2, 2))
    assert np.isnan(y[..., 1]).all()
    assert not np.isnan(y[..., 0]).any()
    assert np.isnan(kernels.relu(x)).sum() == 1


def test_gradients_of_one_node_from_a_pool_and_a_layer():
    net = Net("two ways", (4, 4, 3))
    x = net.add("conv", Conv2d(5, 3, pad=1), net.input)
    pooled = net.add("pool", GlobalAvgPool(), x)
    flat = net.add("flat", Flatten(), x)
    heads = [net.add(name, Linear(2), node) for name, node in (("one", flat), ("two", pooled))]
    net.finish(heads[1], [(heads[0], 1.0)]).allocate(dtype=np.float64)
    images = np.random.default_rng(0).normal(size=(2, 4, 4, 3))
    net.forward(images, np.array([0, 1]), Step())
    net.backward()
    assert np.isfinite(net.arena.gradients).all()
