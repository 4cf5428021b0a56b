"""Stochastic gradient descent, as Caffe's solver does it."""

from __future__ import annotations

from mgwfbp.kernels import Array
from mgwfbp.optim.optimizer import Optimizer, optimizer


@optimizer("sgd")
class SGD(Optimizer):
    """v ← momentum·v + lr·(g + weight_decay·w); w ← w − v, or Nesterov's step."""

    slots = ("velocity",)

    def __init__(self, lr: float, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False) -> None:
        super().__init__(lr)
        self.momentum, self.weight_decay, self.nesterov = momentum, weight_decay, nesterov
        self.need(momentum >= 0 and weight_decay >= 0, "momentum and weight decay ≥ 0", (momentum, weight_decay))

    def rule(self, lr: float, w: Array, g: Array, velocity: Array) -> None:
        """One pass over memory, in the kernel set."""
        self.kernels.sgd_update(w, g, velocity, lr, self.momentum, self.weight_decay, self.nesterov)
