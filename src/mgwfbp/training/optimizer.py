"""Stochastic gradient descent on slices of the arena."""

from __future__ import annotations

import math

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
        clip_norm: float | None = None,
    ) -> None:
        self.arena, self.kernels = arena, kernels
        self.lr, self.momentum, self.weight_decay, self.nesterov = lr, momentum, weight_decay, nesterov
        self.clip_norm = clip_norm
        self.velocity = kernels.xp.zeros_like(arena.parameters)

    def clip(self) -> None:
        """Scale all gradients so that their global L2 norm is at most `clip_norm` (Pascanu et al. 2013).

        The norm is summed layer by layer in float64, so that no schedule changes it.
        """
        if self.clip_norm is None:
            return
        parts = (self.arena.gradients[part] for part in self.arena.layer_slices)
        norm = math.sqrt(float(sum((part.astype(float) ** 2).sum() for part in parts)))
        if norm > self.clip_norm:
            self.arena.gradients *= self.clip_norm / norm

    def update(self, part: slice) -> None:
        """Update the parameters in `part` of the flat array, a bucket's slice."""
        w, g, v = self.arena.parameters[part], self.arena.gradients[part], self.velocity[part]
        self.kernels.sgd_update(w, g, v, self.lr, self.momentum, self.weight_decay, self.nesterov)
