"""Stochastic gradient descent on slices of the arena."""

from __future__ import annotations

from mgwfbp.arena import Arena
from mgwfbp.kernels import Kernels


class SGD:
    """Caffe's solver: v ← momentum·v + lr·(g + weight_decay·w); w ← w − v, or Nesterov's step.

    g is the gradient of the mean loss over the global batch, which the slice holds once its message has ended. `lr`
    may be changed between updates. `velocity` is a flat array like the arena's.
    """

    def __init__(
        self,
        arena: Arena,
        kernels: Kernels,
        *,
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        self.arena, self.kernels = arena, kernels
        self.lr, self.momentum, self.weight_decay, self.nesterov = lr, momentum, weight_decay, nesterov
        self.velocity = kernels.xp.zeros_like(arena.parameters)

    def update(self, part: slice) -> None:
        """Update the parameters in `part` of the flat array, a bucket's slice."""
        w, g, v = self.arena.parameters[part], self.arena.gradients[part], self.velocity[part]
        self.kernels.sgd_update(w, g, v, self.lr, self.momentum, self.weight_decay, self.nesterov)
