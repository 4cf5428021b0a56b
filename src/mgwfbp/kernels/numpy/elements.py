"""Products, passes over elements, the loss and the update in pure NumPy."""

from __future__ import annotations

from typing import cast

import numpy as np

from mgwfbp.kernels.types import Array


class Elements:
    """What goes over elements one by one, and the product of matrices."""

    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Array:
        """a @ b for matrices, written into `out` if it is given."""
        return np.matmul(a, b, out=out)

    def relu(self, x: Array) -> Array:
        """max(x, 0)."""
        return np.maximum(x, 0)

    def relu_gradient(self, y: Array, dy: Array) -> Array:
        """dy where y > 0, else 0."""
        return dy * (y > 0)

    def add(self, a: Array, b: Array, relu: bool) -> Array:
        """a + b; max(…, 0) of it with `relu`."""
        y = a + b
        return np.maximum(y, 0, out=y) if relu else y

    def softmax_cross_entropy(self, logits: Array, labels: Array) -> tuple[Array, Array]:
        """(losses of the rows, probabilities): −log softmax(logits)[label], and the softmax.

        The row's maximum is subtracted first, so nothing overflows.
        """
        shifted = logits - logits.max(axis=1, keepdims=True)
        exponentials = np.exp(shifted)
        sums = exponentials.sum(axis=1, keepdims=True)
        losses = np.log(sums[:, 0]) - shifted[np.arange(len(labels)), labels]
        exponentials /= sums
        return losses, exponentials

    def sgd_update(
        self, w: Array, g: Array, v: Array, lr: float, momentum: float, weight_decay: float, nesterov: bool
    ) -> None:
        """Caffe's rule, in place: v ← momentum·v + lr·(g + weight_decay·w); w ← w − v. `g` is left as it is.

        Nesterov: w ← w − ((1 + momentum)·v − momentum·v_old), where v_old is the v before.
        """
        step = cast(np.ndarray, g * lr)
        if weight_decay:
            step += (lr * weight_decay) * w
        v *= momentum
        v += step
        w -= v
        if nesterov:  # (1+m)·v − m·v_old = v + (m·v − (v − step)), and v − step = m·v_old
            w -= momentum * v - (v - step)
