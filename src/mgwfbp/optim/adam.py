"""Adam (Kingma and Ba 2015, algorithm 1)."""

from __future__ import annotations

from mgwfbp.kernels import Array
from mgwfbp.optim.optimizer import Optimizer, optimizer


@optimizer("adam")
class Adam(Optimizer):
    """w ← w − lr · m̂ / (√v̂ + epsilon): running means of g and g², corrected for having begun at zero.

    `weight_decay` is added to the gradient (L2), as in the paper's time and in torch.optim.Adam.
    """

    slots = ("m", "v")

    def __init__(
        self,
        lr: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(lr)
        self.beta1, self.beta2, self.epsilon, self.weight_decay = beta1, beta2, epsilon, weight_decay
        self.need(0 <= beta1 < 1 and 0 <= beta2 < 1, "betas of at least 0 and below 1", (beta1, beta2))

    def rule(self, lr: float, w: Array, g: Array, m: Array, v: Array) -> None:
        """Each element alone, in place."""
        if self.weight_decay:
            g += self.weight_decay * w
        m += (1 - self.beta1) * (g - m)
        v += (1 - self.beta2) * (g * g - v)
        size = lr / (1 - self.beta1**self.steps)
        w -= size * m / ((v / (1 - self.beta2**self.steps)) ** 0.5 + self.epsilon)
