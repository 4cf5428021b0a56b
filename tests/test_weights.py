"""Weights by name: frozen layers, rates of layers, nets that begin with given weights."""

from __future__ import annotations

import numpy as np
import pytest

from mgwfbp.errors import UserError
from mgwfbp.models import build
from mgwfbp.net import Net, begin_with, fuse, head_layers, tensors
from mgwfbp.net.check import check_gradients
from mgwfbp.net.layers import BatchNorm2d, Conv2d, Flatten, Linear, ReLU, Step
from mgwfbp.optim import make_optimizer, rates_from_text
from mgwfbp.optim.sgd import SGD


def small(frozen=(), fused=False):
    net = Net("small", (6, 6, 2))
    x = net.chain(net.input, c1=Conv2d(4, 3, pad=1), n1=BatchNorm2d(), r1=ReLU(), c2=Conv2d(3, 3), n2=BatchNorm2d())
    net.finish(net.chain(x, r2=ReLU(), flat=Flatten(), fc=Linear(5))).freeze(*frozen)
    return (fuse(net) if fused else net).allocate(seed=3, dtype="float64")


def step(net, rng):
    net.forward(rng.standard_normal((8, 6, 6, 2)), rng.integers(0, 5, 8), Step())
    announced = []
    net.backward(announced.append)
    assert announced == list(range(len(net.learnable)))


def test_layers_that_are_not_frozen_get_the_gradients_that_they_would_get_anyway():
    whole, part = small(), small(["c1"])
    for net in (whole, part):
        step(net, np.random.default_rng(0))
    assert [layer.name for layer in part.learnable] == ["fc", "n2", "c2", "n1"]
    for layer, same in zip(whole.learnable, part.learnable, strict=False):
        for tensor in layer.parameters:
            ours, theirs = getattr(same, f"d_{tensor.name}"), getattr(layer, f"d_{tensor.name}")
            assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("fused", [False, True])
def test_a_frozen_batchnorm_keeps_its_statistics_and_lets_the_gradient_through(fused):
    net = small(["n2"], fused)
    net.layers[4].running_mean[...], net.layers[4].running_var[...] = 0.3, 2.0
    rng = np.random.default_rng(1)
    images, labels = rng.standard_normal((8, 6, 6, 2)), rng.integers(0, 5, 8)
    loss = float(net.forward(images, labels, Step())[0])
    net.backward()
    assert (net.layers[4].running_mean == 0.3).all()
    weight, gradient, small_step = net.layers[3].weight, net.layers[3].d_weight.copy(), 1e-6
    weight[1, 1, 2, 1] += small_step
    more = float(net.forward(images, labels, Step())[0])
    assert (more - loss) / small_step == pytest.approx(gradient[1, 1, 2, 1], rel=1e-4)


def test_the_gradients_of_a_frozen_batchnorm_alone():
    layer = BatchNorm2d()
    layer.frozen = True
    assert max(check_gradients(layer, (3, 3, 2)).values()) < 1e-6


def test_frozen_parameters_lie_in_an_array_of_their_own_and_stay():
    net = small(["c*", "n1"])
    before = {name: array.copy() for name, array in tensors(net).items()}
    optimizer = SGD(lr=0.1)
    optimizer.open(net.arena, net.kernels)
    step(net, np.random.default_rng(2))
    optimizer.update(net.arena.layer_slices)
    changed = {name for name, array in tensors(net).items() if not np.array_equal(array, before[name])}
    assert changed == {"n2.gamma", "n2.beta", "n2.running_mean", "n2.running_var", "fc.weight", "fc.bias"}
    assert len(net.frozen) == sum(before[name].size for name in before if name[:2] in ("c1", "c2", "n1")) - 8
    assert {place.array for place in net.places.values()} == {"parameters", "frozen", "state"}


def test_a_pattern_that_means_no_layer_and_a_net_with_nothing_to_train():
    with pytest.raises(UserError, match="no layer with parameters is called 'conv\\*'; they are c1, n1, c2, n2, fc"):
        small(["conv*"])
    with pytest.raises(UserError, match="there is nothing to train"):
        small(["*"])
    with pytest.raises(UserError, match="before their parameters are allocated"):
        small().freeze("c1")


@pytest.mark.parametrize("kept", [False, True])
def test_rates_are_factors_of_the_learning_rate_by_layer_and_tensor(kept):
    net, plain = small(), small()
    optimizer, same = SGD(lr=0.1, momentum=0.9), SGD(lr=0.1, momentum=0.9)
    optimizer.rates = {"c*": 0.1, "*.bias": 2.0, "fc": 0.0}
    optimizer.open(net.arena, net.kernels)
    same.open(plain.arena, plain.kernels)
    size = len(net.arena.parameters)
    parts = [slice(0, 77), slice(77, size - 3), slice(size - 3, size)]  # through the middle of tensors
    if kept:
        optimizer.keep(parts)
    before = {name: array.copy() for name, array in tensors(net).items()}
    for each in (net, plain):
        step(each, np.random.default_rng(4))
    optimizer.update(parts)
    same.update([slice(0, size)])
    for name, array in tensors(net).items():
        if "running" in name:
            continue
        factor = 0.0 if name.startswith("fc") else 2.0 if name.endswith("bias") else 0.1 if name[0] == "c" else 1.0
        assert array - before[name] == pytest.approx(factor * (tensors(plain)[name] - before[name]), abs=1e-12)


@pytest.mark.parametrize(
    ("rates", "says"),
    [
        ({"conv": 0.1}, "no layer or tensor that learns is called 'conv'"),
        ({"c1": -1.0}, "must be a finite number ≥ 0, got -1"),
        ({"c1": float("nan")}, "must be a finite number ≥ 0, got nan"),
    ],
)
def test_rates_that_cannot_be(rates, says):
    net, optimizer = small(), SGD(lr=0.1)
    optimizer.rates = rates
    with pytest.raises(UserError, match=says):
        optimizer.open(net.arena, net.kernels)


def test_rates_from_the_command_line_are_what_ranks_compare():
    optimizer = make_optimizer("sgd", {"lr": 0.1}, {"lr": 0.1})
    assert "rates" not in optimizer.description()
    optimizer.rates = rates_from_text("stage1/*=0.1, *.bias=2")
    assert "rates {'stage1/*': 0.1, '*.bias': 2.0}" in optimizer.description()
    for wrong in ("fc", "=2", "fc=x", "fc=1,"):
        with pytest.raises(UserError, match="is not of the form NAME=FACTOR"):
            rates_from_text(wrong)


def test_a_net_begins_with_weights_by_name_and_shape():
    old, new = (build("lenet", (28, 28, 1), classes).allocate(seed=seed) for classes, seed in ((10, 1), (3, 2)))
    given = {name: array.copy() for name, array in tensors(old).items()}
    first = tensors(new)["ip2.weight"].copy()
    with pytest.raises(UserError, match=r"ip2.weight is \(500, 10\) there and \(500, 3\) here; --replace-head"):
        begin_with(new, given, "old")
    assert not np.array_equal(tensors(new)["conv1.weight"], given["conv1.weight"])  # nothing was copied
    assert head_layers(new) == ["ip2"]
    begin_with(new, given, "old", but=head_layers(new))
    assert np.array_equal(tensors(new)["conv1.weight"], given["conv1.weight"])
    assert np.array_equal(tensors(new)["ip2.weight"], first)
    del given["ip1.bias"]
    with pytest.raises(UserError, match="they have no ip1.bias, which lenet has"):
        begin_with(new, given, "old", but=["ip2"])


def test_every_head_of_googlenet_is_a_head():
    names = head_layers(build("googlenet", (96, 96, 3), 5))
    assert len(names) == 3
    assert all(build("googlenet", (96, 96, 3), 5).layers[0].name != name for name in names)


def test_images_of_another_type_are_refused_in_one_line():
    net = build("lenet").allocate()
    for dtype in (np.uint8, np.float64):
        with pytest.raises(UserError, match=r"needs normalised images of float32, got \w+; data.normalised"):
            net.forward(np.zeros((2, 28, 28, 1), dtype), np.zeros(2, int), Step())


@pytest.mark.parametrize("labels", [[0, -1], [10, 3]])
def test_labels_that_no_class_has_are_refused(labels):
    net = build("lenet").allocate()
    with pytest.raises(UserError, match=r"labels must be 0..9, got"):
        net.forward(np.zeros((2, 28, 28, 1), np.float32), np.array(labels), Step())
