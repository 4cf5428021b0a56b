"""The graph: order of announcements, whole nets against PyTorch, parameter counts."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import torch

from mgwfbp.bench import torch_eager
from mgwfbp.errors import UserError
from mgwfbp.kernels import kernel_set
from mgwfbp.models import MODELS, build
from mgwfbp.net import Net, fuse
from mgwfbp.net.layers import Add, BatchNorm2d, Concat, Flatten, GlobalAvgPool, Linear, ReLU, Step, Tanh
from mgwfbp.simulate.specs import workload_from_spec
from tests import torch_reference
from tests.torch_reference import NHWC_TO_NCHW, distance, from_torch, layout_of, parameters


@pytest.mark.parametrize(
    ("name", "layers", "tensors", "count"),
    [
        ("lenet", 4, 8, 431_080),
        ("mlp", 3, 6, 235_146),
        ("resnet20", 39, 59, 269_722),
        ("resnet32", 63, 95, 464_154),
        ("resnet56", 111, 167, 853_018),
        ("resnet110", 219, 329, 1_727_962),
        ("resnet18", 41, 62, 11_689_512),
        ("resnet34", 73, 110, 21_797_672),
        ("resnet50", 107, 161, 25_557_032),
        ("resnet101", 209, 314, 44_549_160),
        ("resnet152", 311, 467, 60_192_808),
        ("densenet121", 242, 364, 7_978_856),
        ("densenet161", 322, 484, 28_681_000),
        ("densenet169", 338, 508, 14_149_480),
        ("densenet201", 402, 604, 20_013_928),
        ("densenet40", 79, 119, 1_019_722),
        ("densenetbc100", 199, 299, 769_162),
        ("alexnet", 8, 16, 60_965_224),
        ("vgg16", 16, 32, 138_357_544),
        ("vgg19", 19, 38, 143_667_240),
        ("googlenet", 64, 128, 13_378_280),
        ("inceptionv4", 299, 449, 42_679_816),
    ],
)
def test_learnable_layers_tensors_and_parameters_are_the_originals(name, layers, tensors, count):
    net = build(name)
    assert len(net.learnable) == layers
    assert sum(len(layer.parameters) for layer in net.learnable) == tensors
    assert sum(prod(tensor.shape) for layer in net.learnable for tensor in layer.parameters) == count


def test_every_model_is_in_that_table():
    marks = test_learnable_layers_tensors_and_parameters_are_the_originals.pytestmark
    assert {row[0] for row in marks[0].args[1]} == set(MODELS)


@pytest.mark.parametrize("name", ["lenet", "mlp", "resnet20"])
def test_a_step_at_the_original_size(name):
    net = build(name, classes=3).allocate(seed=4)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(2, *net.input.shape)).astype(np.float32)
    loss, correct = net.forward(images, np.array([0, 2]), Step())
    net.arena.gradients[...] = np.nan
    net.backward()
    assert loss > 0
    assert correct in (0, 1, 2)
    for place in range(len(net.learnable)):
        for name_of, (_, gradient) in net.arena.views(place).items():
            assert np.isfinite(gradient).all(), (net.learnable[place].name, name_of)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 1e-4)])
@pytest.mark.parametrize(
    ("name", "reference"), [("lenet", torch_reference.lenet), ("resnet20", torch_reference.resnet20)]
)
def test_whole_nets_against_torch(name, reference, dtype, tolerance, kernels):
    net = fuse(build(name)).allocate(seed=3, dtype=dtype, kernels=kernels)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(4, *net.input.shape)).astype(dtype)
    labels = rng.integers(0, 10, 4)
    loss, _ = net.forward(images, labels, Step())
    net.backward()
    p = parameters(net)
    out = reference(p, torch.from_numpy(np.ascontiguousarray(images.transpose(NHWC_TO_NCHW))))
    theirs = torch.nn.functional.cross_entropy(out, torch.from_numpy(labels))
    theirs.backward()
    assert loss == pytest.approx(theirs.item(), rel=tolerance)
    for layer in net.learnable:
        for tensor in layer.parameters:
            gradient = getattr(layer, f"d_{tensor.name}")
            expected = from_torch(p[f"{layer.name}/{tensor.name}"].grad, layout_of(gradient))
            assert distance(gradient, expected) < tolerance, (layer.name, tensor.name)


# name -> (input shape, batch): as small as the net allows
SMALL = {
    "mlp": ((6, 5, 3), 4),
    "resnet32": ((16, 16, 3), 3),
    "densenet40": ((16, 16, 3), 3),
    "densenetbc100": ((16, 16, 3), 2),
    "resnet18": ((64, 64, 3), 2),
    "resnet50": ((64, 64, 3), 2),
    "densenet121": ((64, 64, 3), 2),
    "inceptionv4": ((139, 139, 3), 2),
    "alexnet": ((67, 67, 3), 2),
    "vgg16": ((32, 32, 3), 2),
    "googlenet": ((128, 128, 3), 2),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.all) if name in ("inceptionv4", "vgg16") else name for name in SMALL]
)
def test_every_family_against_torch_layer_by_layer(name):
    """Loss and all gradients, in float64 because BatchNorm over two samples magnifies float32's rounding."""
    shape, batch = SMALL[name]
    net = fuse(build(name, shape, 7)).allocate(seed=3, dtype=np.float64)
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(batch, *shape)), rng.integers(0, 7, batch)
    loss, _ = net.forward(images, labels, Step(seed=1))
    net.backward()
    p = parameters(net)
    x = torch.from_numpy(np.ascontiguousarray(images.transpose(NHWC_TO_NCHW)))
    theirs = torch_eager.loss(net, p, x, torch.from_numpy(labels), same_masks=True)
    theirs.backward()
    assert loss == pytest.approx(theirs.item(), rel=1e-9)
    ours, expected = [], []
    for layer in net.learnable:
        for tensor in layer.parameters:
            gradient = getattr(layer, f"d_{tensor.name}")
            ours.append(gradient.ravel())
            expected.append(from_torch(p[f"{layer.name}/{tensor.name}"].grad, layout_of(gradient)).ravel())
            assert distance(ours[-1], expected[-1]) < 1e-6, (layer.name, tensor.name)
    assert distance(np.concatenate(ours), np.concatenate(expected)) < 1e-8


# The two largest are compared with torch above; they would take as long as all others together.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.all) if name in ("resnet50", "densenet121", "alexnet") else name
        for name in SMALL
        if name not in ("inceptionv4", "vgg16")
    ],
)
def test_every_family_in_float32_on_both_sets(name, kernels):
    """Against NumPy's float64, with Tanh in the place of every ReLU: in a deep net some ReLU's input is always within
    rounding of 0, its mask flips, and BatchNorm spreads that over all layers below, in torch as here.
    """
    shape, batch = SMALL[name][0], 4
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(batch, *shape)), rng.integers(0, 7, batch)
    results = []
    for chosen, dtype in ((kernel_set("numpy"), np.float64), (kernels, np.float32)):
        net = build(name, shape, 7)
        net.layers = [Tanh() if isinstance(layer, ReLU) else layer for layer in net.layers]
        net.allocate(seed=3, dtype=dtype, kernels=chosen)
        loss, _ = net.forward(images.astype(dtype), labels, Step(seed=1))
        net.backward()
        results.append((loss, net.arena.gradients))
    assert results[1][0] == pytest.approx(results[0][0], rel=1e-4)
    # At these sizes ResNet-50's last BatchNorms see four to sixteen values a channel, which magnifies rounding.
    tolerance = 4e-4 if name == "resnet50" else 1e-4
    assert distance(results[1][1], results[0][1]) < tolerance


def test_fusion_changes_which_layer_works_and_nothing_else():
    plain, fused = (wrap(build("resnet20", (8, 8, 3))).allocate(dtype=np.float64) for wrap in (lambda net: net, fuse))
    assert sum(getattr(layer, "fused", False) for layer in fused.layers) == 19
    images, labels = np.random.default_rng(0).normal(size=(4, 8, 8, 3)), np.array([0, 1, 2, 3])
    for step in (Step(), Step(training=False)):
        assert plain.forward(images, labels, step) == pytest.approx(fused.forward(images, labels, step), rel=1e-12)
    for net in (plain, fused):
        net.forward(images, labels, Step())
        net.backward()
    assert distance(fused.arena.gradients, plain.arena.gradients) < 1e-12
    two_users = Net("two", (4,))
    x = two_users.add("bn", BatchNorm2d(), two_users.input)
    y = two_users.add("relu", ReLU(), x)
    two_users.finish(two_users.add("fc", Linear(2), two_users.add("add", Add(), x, y)))
    fuse(two_users)
    assert not two_users.layers[1].fused  # the BatchNorm's output is used without the ReLU, too


def check_by_central_differences(net, images, labels, every=1):
    """Every `every`-th gradient that is not zero, against the slope of the loss."""
    net.forward(images, labels, Step())
    net.backward()
    gradients = net.arena.gradients.copy()
    for at in np.flatnonzero(gradients)[::every]:
        kept, ends = net.arena.parameters[at], []
        for h in (1e-6, -1e-6):
            net.arena.parameters[at] = kept + h
            ends.append(net.forward(images, labels, Step())[0])
        net.arena.parameters[at] = kept
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(gradients[at], rel=1e-5, abs=1e-8)


def test_several_losses_are_added_in_training_and_only_the_main_one_counts_in_evaluation():
    net = Net("heads", (6,))
    x = net.add("a", Linear(5), net.input)
    side = net.add("side", Linear(3), x)
    y = net.add("b", Linear(4), x)
    net.finish(net.add("main", Linear(3), y), [(side, 0.5)]).allocate(dtype=np.float64)
    images, labels = np.random.default_rng(0).normal(size=(4, 6)), np.array([0, 1, 2, 1])
    both, _ = net.forward(images, labels, Step())
    side_loss, main_loss = (
        head.loss.loss(logits, labels, 4)[0] for head, logits in zip(net.heads, net.logits(images, Step()), strict=True)
    )
    assert both == pytest.approx(main_loss + 0.5 * side_loss)
    side_layer = net.layers[1]
    del side_layer.x
    evaluated, _ = net.forward(images, labels, Step(training=False))
    assert evaluated == pytest.approx(main_loss)
    assert not hasattr(side_layer, "x")  # the side head was not computed
    check_by_central_differences(net, images, labels, every=7)
    with pytest.raises(UserError, match="as many classes as the main head"):
        net.finish(y, [(side, 0.5)])


def test_googlenet_is_the_net_of_the_public_trace():
    trace, net = workload_from_spec("k80-googlenet"), build("googlenet")
    assert [layer.name for layer in net.learnable] == [layer.name for layer in trace.layers]
    for layer, traced in zip(net.learnable, trace.layers, strict=True):
        assert sum(prod(tensor.shape) for tensor in layer.parameters) == traced.parameters


def branching():
    """A net with a branch, a join of both kinds, and a value used three times."""
    net = Net("branching", (6,))
    x = net.add("a", Linear(5), net.input)
    left, right = net.add("b", Linear(5), x), net.add("relu", ReLU(), x)
    joined = net.add("add", Add(), left, right, x)
    both = net.add("concat", Concat(), joined, x)
    return net.finish(net.add("c", Linear(3), both))


def test_a_graph_with_branches_against_central_differences():
    net = branching().allocate(dtype=np.float64)
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(4, 6)), np.array([0, 1, 2, 1])
    check_by_central_differences(net, images, labels)


def test_gradients_are_announced_in_arena_order_when_written_and_before_the_input_gradient():
    net = branching().allocate()
    events = []
    for layer in net.layers:
        backward_input = layer.backward_input
        layer.backward_input = lambda dy, layer=layer, run=backward_input: (events.append(layer.name), run(dy))[1]
    net.arena.gradients[...] = np.nan
    net.forward(np.ones((2, 6), np.float32), np.array([0, 1]), Step())

    def on_gradient(place: int) -> None:
        events.append(place)
        written = [np.isfinite(net.arena.views(i)["weight"][1]).all() for i in range(3)]
        assert written == [i <= place for i in range(3)]

    net.backward(on_gradient)
    assert [layer.name for layer in net.learnable] == ["c", "b", "a"]
    assert events == [0, "c", "concat", "add", "relu", 1, "b", 2]  # and none for the images


@pytest.mark.parametrize("name", ["lenet", "resnet20"])
def test_backward_does_not_read_what_it_has_announced(name):
    """After the announcement the comm thread may already be adding the other ranks' gradients into the views."""
    net = build(name).allocate(seed=2)
    rng = np.random.default_rng(0)
    net.forward(rng.normal(size=(2, *net.input.shape)).astype(np.float32), np.array([1, 2]), Step())
    net.backward()
    expected = net.arena.gradients.copy()
    seen = np.zeros_like(expected)

    def message_arrives(place: int) -> None:
        part = net.arena.layer_slices[place]
        seen[part] = net.arena.gradients[part]
        net.arena.gradients[part] = 1e6

    net.backward(message_arrives)
    assert np.array_equal(seen, expected)


def test_a_branch_that_leads_nowhere_has_no_gradient():
    net = Net("dead end", (4,))
    net.add("unused", Linear(2), net.input)
    net.finish(net.add("fc", Linear(3), net.input)).allocate()
    net.arena.gradients[...] = np.nan
    seen = []
    net.forward(np.ones((2, 4), np.float32), np.array([0, 1]), Step())
    net.backward(seen.append)
    assert seen == [0, 1]
    assert not net.arena.gradients[net.arena.layer_slices[1]].any()


def test_the_seed_fixes_the_weights_and_the_place_decides_them():
    nets = [build("lenet").allocate(seed=seed) for seed in (1, 1, 2)]
    hashes = [net.arena.parameters_sha256() for net in nets]
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_sum_over_parts_of_a_batch_is_the_whole_batch():
    net = build("lenet").allocate(dtype=np.float64)
    rng = np.random.default_rng(1)
    images, labels = rng.normal(size=(5, 28, 28, 1)), rng.integers(0, 10, 5)
    whole, _ = net.forward(images, labels, Step())
    net.backward()
    expected, loss, total = net.arena.gradients.copy(), 0.0, 0.0
    for part in (slice(0, 2), slice(2, 5)):
        loss += net.forward(images[part], labels[part], Step(), global_batch=5)[0]
        net.backward()
        total = total + net.arena.gradients
    assert loss == pytest.approx(whole, rel=1e-12)
    assert distance(total, expected) < 1e-12


def test_mistakes_in_a_graph_are_named():
    net = Net("bad", (4, 4, 3))
    x = net.add("pool", GlobalAvgPool(), net.input)
    with pytest.raises(UserError, match="two layers are called pool"):
        net.add("pool", Flatten(), x)
    with pytest.raises(UserError, match="no layer has parameters"):
        net.finish(x)
    with pytest.raises(UserError, match="did you mean 'resnet20'"):
        build("resnet-20")
    with pytest.raises(UserError, match="layer conv2 .Conv2d.: needs an input of at least"):
        build("lenet", (8, 8, 1))
    with pytest.raises(UserError, match=r"lenet: needs images of \(28, 28, 1\), got \(32, 32, 3\)"):
        build("lenet").allocate().forward(np.zeros((1, 32, 32, 3), np.float32), np.array([0]), Step())


def test_a_head_on_a_node_that_a_fused_relu_also_uses_sees_the_node_itself():
    losses = []
    for fused in (False, True):
        net = Net("heads", (3, 3, 2))
        x = net.add("norm", BatchNorm2d(), net.add("flat", Flatten(), net.input))
        aside = net.add("relu", ReLU(), x)
        net.finish(net.add("fc", Linear(18), aside), [(x, 0.5)])
        net = (fuse(net) if fused else net).allocate(seed=1, dtype=np.float64, kernels=kernel_set("numpy"))
        images = np.random.default_rng(0).normal(size=(4, 3, 3, 2))
        losses.append(float(net.forward(images, np.arange(4), Step())[0]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_two_heads_on_one_node_add_their_gradients():
    gradients = []
    for auxiliary in ([], [0.5]):
        net = Net("two heads", (5,))
        x = net.add("fc", Linear(3), net.input)
        net.finish(x, [(x, weight) for weight in auxiliary]).allocate(seed=1, dtype=np.float64)
        net.forward(np.ones((2, 5)), np.array([0, 1]), Step())
        net.backward()
        gradients.append(net.arena.gradients.copy())
    assert np.allclose(gradients[1], 1.5 * gradients[0])
