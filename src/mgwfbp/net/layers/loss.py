"""The loss at the end of a net."""

from __future__ import annotations

from mgwfbp.kernels import Array
from mgwfbp.net.layers.layer import Layer, Shape


class SoftmaxCrossEntropy(Layer):
    """−log softmax(x)[label], summed over this rank's samples and divided by the size of the *global* batch.

    So the sum of the ranks' losses is the mean over the global batch, and the sum of the ranks' gradients is that
    mean's gradient: the all-reduce only adds, and a short last batch, or one that does not divide by the ranks, needs
    no special case. (It also keeps messages small enough for float16.)

    With `smoothing` s the target is 1 − s on the label plus s spread evenly over all classes (Szegedy et al. 2016).
    """

    def __init__(self, smoothing: float = 0.0) -> None:
        super().__init__()
        self.need(0 <= smoothing < 1, "a smoothing of at least 0 and below 1", smoothing)
        self.smoothing = smoothing

    def connect(self, *shapes: Shape) -> Shape:
        """(classes,) → ()."""
        (shape,) = shapes
        self.need(len(shape) == 1, "an input of (classes,)", shape)
        return ()

    def loss(self, logits: Array, labels: Array, global_batch: int, training: bool = True) -> tuple[Array, Array]:
        """(this rank's share of the mean loss, how many of its samples have their label on top).

        `logits` is (batch, classes), `labels` (batch,) of integers below classes. Only training is smoothed. Both
        results are arrays of no dimension, so that a GPU need not be waited for: float() and int() wait.
        """
        losses, self.probabilities = self.kernels.softmax_cross_entropy(logits, labels)
        self.labels, self.global_batch = labels, global_batch
        total = losses.sum(dtype=float)
        if self.smoothing and training:
            # −log p of class c is the label's plus (logit of the label − logit of c): on average over the classes
            picked = logits[self.kernels.xp.arange(len(labels)), labels]
            total = total + self.smoothing * (picked - logits.mean(axis=1)).sum(dtype=float)
        return total / global_batch, (logits.argmax(axis=1) == labels).sum()

    def gradient(self) -> Array:
        """dL/dlogits = (softmax(x) − target) / global batch."""
        d_logits = self.probabilities / self.global_batch
        hit = (1.0 - self.smoothing) / self.global_batch
        d_logits[self.kernels.xp.arange(len(self.labels)), self.labels] -= hit
        if self.smoothing:
            d_logits -= self.smoothing / (self.global_batch * d_logits.shape[1])
        return d_logits
