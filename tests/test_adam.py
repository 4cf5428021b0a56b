"""Adam: against PyTorch, part by part, and by its name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mgwfbp.errors import UserError
from mgwfbp.net import Arena, LayerSpec
from mgwfbp.optim import make_optimizer
from mgwfbp.optim.adam import Adam
from mgwfbp.runs.config import Config


@pytest.mark.parametrize("decay", [0.0, 1e-2])
def test_against_torch(decay, kernels):
    rng = np.random.default_rng(0)
    arena = Arena([LayerSpec("a", [("w", (100,))]), LayerSpec("b", [("w", (50,))])], np.float64)
    arena.parameters[:] = rng.normal(size=192)
    ours = Adam(lr=0.1, beta1=0.8, beta2=0.99, weight_decay=decay).open(arena, kernels)
    theirs = torch.from_numpy(arena.parameters.copy()).requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=0.1, betas=(0.8, 0.99), weight_decay=decay)
    for _ in range(5):
        arena.gradients[:] = rng.normal(size=192)
        theirs.grad = torch.from_numpy(arena.gradients.copy())
        optimizer.step()
        ours.steps += 1
        ours.update([slice(0, 128)])
        ours.update([slice(128, 192)])
        assert np.allclose(arena.parameters, theirs.detach().numpy(), rtol=1e-10, atol=1e-12)


def test_what_the_command_line_says_of_it():
    defaults = Config("").to_dict()
    given = {name: defaults[name] for name in ("lr", "momentum", "weight_decay", "nesterov")}
    made = make_optimizer("adam:beta2=0.99,epsilon=1e-6", {**given, "lr": 1e-3}, defaults)
    assert isinstance(made, Adam)
    assert (made.lr, made.beta1, made.beta2, made.epsilon, made.weight_decay) == (1e-3, 0.9, 0.99, 1e-6, 5e-4)
    for spec, change, says in (
        ("adam", {"momentum": 0.5}, "--optimizer adam takes no --momentum"),
        ("adam:beta3=1", {}, "unknown key in --optimizer adam:beta3=1: 'beta3'"),
        ("adam:beta1=x", {}, "write numbers"),
        ("adan", {}, "unknown optimizer 'adan': did you mean 'adam'"),
    ):
        with pytest.raises(UserError, match=says):
            make_optimizer(spec, {**given, **change}, defaults)
