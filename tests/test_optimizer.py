"""SGD and learning-rate policies: against PyTorch, against Caffe's formulas, slice by slice."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mgwfbp.errors import UserError
from mgwfbp.kernels import kernel_set
from mgwfbp.net import Arena, LayerSpec
from mgwfbp.optim import Optimizer
from mgwfbp.optim.lr import EXAMPLES, KEYS, check_lr, lr_policy
from mgwfbp.optim.sgd import SGD


def arena_of(values, dtype=np.float64):
    arena = Arena([LayerSpec("a", [("w", (100,))]), LayerSpec("b", [("w", (50,))])], dtype)
    arena.parameters[:] = values
    return arena


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.9, 1e-2)])
def test_against_torch(momentum, decay, nesterov, kernels):
    if nesterov and not momentum:
        pytest.skip("torch asks for a momentum")
    rng = np.random.default_rng(0)
    dtype = np.float32 if kernels.name == "fast" else np.float64
    arena = arena_of(rng.normal(size=192), dtype)
    ours = SGD(lr=0.1, momentum=momentum, weight_decay=decay, nesterov=nesterov).open(arena, kernels)
    theirs = torch.from_numpy(arena.parameters.copy()).requires_grad_()
    optimizer = torch.optim.SGD([theirs], lr=0.1, momentum=momentum, weight_decay=decay, nesterov=nesterov)
    for _ in range(5):
        arena.gradients[:] = rng.normal(size=192)
        theirs.grad = torch.from_numpy(arena.gradients.copy())
        optimizer.step()
        ours.update([slice(0, 128)])
        ours.update([slice(128, 192)])
        tolerance = 1e-12 if dtype == np.float64 else 1e-5
        assert np.allclose(arena.parameters, theirs.detach().numpy(), rtol=tolerance, atol=tolerance)


def test_caffes_velocity_holds_the_learning_rate():
    """V ← m·V + lr·g: after a change of lr, Caffe keeps the old steps' size; torch would rescale them."""
    arena = arena_of(0.0)
    sgd = SGD(lr=1.0, momentum=0.5).open(arena, kernel_set())
    arena.gradients[:] = 1.0
    sgd.update([slice(0, 192)])
    sgd.lr = 0.1
    sgd.update([slice(0, 192)])
    assert np.allclose(arena.parameters, -(1.0 + (0.5 * 1.0 + 0.1 * 1.0)))


def test_a_slice_leaves_the_rest_alone():
    arena = arena_of(1.0)
    arena.gradients[:] = 1.0
    SGD(lr=1.0).open(arena, kernel_set()).update([slice(0, 128)])
    assert not arena.parameters[:128].any()
    assert (arena.parameters[128:] == 1).all()


@pytest.mark.parametrize(
    ("spec", "factors"),
    [
        ("fixed", {0: 1, 50: 1}),
        ("step:gamma=0.5,size=10", {0: 1, 9: 1, 10: 0.5, 25: 0.25}),
        ("multistep:gamma=0.1,at=5+20", {4: 1, 5: 0.1, 19: 0.1, 20: 0.01}),
        ("exp:gamma=0.9", {0: 1, 2: 0.81}),
        ("inv:gamma=0.1,power=2", {0: 1, 10: 0.25}),
        ("poly", {0: 1, 25: 0.75, 99: 0.01}),
        ("poly:power=2", {50: 0.25}),
        ("sigmoid:gamma=-0.1,size=50", {50: 0.5, 0: 1 / (1 + np.exp(-5.0)), 10**6: 0}),
    ],
)
def test_lr_policies(spec, factors):
    for t, factor in factors.items():
        assert lr_policy(spec)(t, 100) == pytest.approx(factor)


def test_every_policys_example_works():
    assert EXAMPLES.keys() | {"fixed"} == KEYS.keys()
    for spec in EXAMPLES.values():
        assert lr_policy(spec)(0, 10) == pytest.approx(1, abs=0.01)


def test_a_rate_that_outgrows_all_numbers_is_refused_before_the_run():
    check_lr("exp:gamma=2", 0.1, 100)
    for spec in ("exp:gamma=2", "exp:gamma=1e200"):
        with pytest.raises(UserError, match="outgrows all numbers in 2000 iterations"):
            check_lr(spec, 0.1, 2000)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("polly", "did you mean 'poly'"),
        ("poly:size=3", "unknown key in lr policy 'poly:size=3': 'size'"),
        ("poly:power=1,power=2", "power is given twice"),
        ("step", "size missing; it takes size, gamma"),
        ("inv:gamma=-1", "needs numbers ≥ 0 for gamma, power, e.g. inv"),
        ("step:size=0", "needs numbers"),
        ("multistep:at=a+b", "needs numbers"),
        ("exp:gamma=nan", "needs numbers"),
    ],
)
def test_bad_lr_policies(spec, says):
    with pytest.raises(UserError, match=says):
        lr_policy(spec)


class Counting(Optimizer):
    slots = ("seen",)

    def rule(self, lr, w, g, seen):
        seen += g
        w -= seen


def test_kept_parts_come_back_to_their_places_on_one_rank_too():
    """A schedule may send the last layer first: what is kept then lies in another order than the arena."""
    arena = arena_of(0.0)
    arena.gradients[:] = np.arange(192)
    one = Counting(lr=1.0).open(arena, kernel_set())
    one.keep([slice(128, 192), slice(0, 128)])
    one.update([slice(128, 192), slice(0, 128)])
    assert np.array_equal(one.whole()["seen"], arena.gradients)
    one.keep(None)
    assert np.array_equal(one.arrays["seen"], arena.gradients)


def test_a_slot_whose_name_a_checkpoint_has_is_refused():
    class Wrong(Optimizer):
        slots = ("state",)

    with pytest.raises(UserError, match="a slot cannot be called state"):
        Wrong(lr=1.0).open(arena_of(0.0), kernel_set())
