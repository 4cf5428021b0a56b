"""The array primitives that the layers call, and the sets that provide them.

Layers are written once; a kernel set decides how the heavy loops run. Every array is NHWC (batch, height, width,
channels) and of one floating dtype; convolution weights are HWIO: (kernel height, kernel width, in / groups, out).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Protocol

from mgwfbp.errors import unknown_name

Array = Any  # numpy.ndarray, or cupy.ndarray in the GPU set
Pair = tuple[int, int]


def positions(size: int, kernel: int, stride: int, pad: int) -> int:
    """How many places a window of `kernel` has, moved by `stride` over `size` elements padded by `pad` at both ends.

    Rounded down, as torch has it: a window that would stick out is left out. 0 or less if none fits.
    """
    return (size + 2 * pad - kernel) // stride + 1


class Kernels(Protocol):
    """What a kernel set provides. `xp` is the array module. Gradients are written into the `out` views given."""

    xp: ModuleType

    def conv2d(self, x: Array, weight: Array, bias: Array | None, stride: Pair, pad: Pair, groups: int) -> Array:
        """y[n,i,j,o] = Σ x[n, i·s+u−p, j·s+v−p, c] · weight[u,v,c,o] + bias[o]."""

    def conv2d_weight_gradient(self, x: Array, dy: Array, out: Array, stride: Pair, pad: Pair, groups: int) -> None:
        """Write dL/dweight into `out`, of the weight's shape."""

    def conv2d_input_gradient(
        self, dy: Array, weight: Array, x_shape: tuple[int, ...], stride: Pair, pad: Pair, groups: int
    ) -> Array:
        """dL/dx, of shape `x_shape`."""

    def max_pool(self, x: Array, kernel: Pair, stride: Pair, pad: Pair, size: Pair) -> Array:
        """The largest value of each window, `size` windows in height and width; what is outside of x never wins."""

    def max_pool_gradient(self, x: Array, y: Array, dy: Array, kernel: Pair, stride: Pair, pad: Pair) -> Array:
        """dL/dx: each window's gradient goes to the first of its largest values."""

    def average_pool(self, x: Array, kernel: Pair, stride: Pair, pad: Pair, share: Array) -> Array:
        """The sum of each window times `share` (height', width', 1), one over the elements that it counts."""

    def average_pool_gradient(
        self, dy: Array, x_shape: tuple[int, ...], kernel: Pair, stride: Pair, pad: Pair, share: Array
    ) -> Array:
        """dL/dx of the mean."""

    def lrn(self, x: Array, size: int, alpha: float, beta: float, k: float) -> tuple[Array, Array]:
        """(y, scale): scale_c = k + alpha/size · Σ of x² over the `size` channels around c; y = x · scale^−beta."""

    def lrn_gradient(self, x: Array, y: Array, scale: Array, dy: Array, size: int, alpha: float, beta: float) -> Array:
        """dL/dx: dy · scale^−beta − 2·alpha·beta/size · x · Σ of dy·y/scale over the channels around."""

    def relu(self, x: Array) -> Array:
        """max(x, 0)."""

    def relu_gradient(self, y: Array, dy: Array) -> Array:
        """dy where y > 0, else 0."""

    def channel_sums(self, x: Array) -> Array:
        """Sum over all axes but the last."""

    def channel_moments(self, x: Array) -> tuple[Array, Array]:
        """Mean and (biased) variance over all axes but the last."""

    def normalise(self, x: Array, mean: Array, inverse_std: Array) -> Array:
        """(x − mean) · inverse_std, each channel its own."""

    def scale_and_shift(self, x: Array, scale: Array, shift: Array) -> Array:
        """x · scale + shift, each channel its own."""

    def normalise_gradient(self, dy: Array, normalised: Array, scale: Array, mean_dy: Array, mean_dy_x: Array) -> Array:
        """scale · (dy − mean_dy − normalised · mean_dy_x), each channel its own."""

    def softmax_cross_entropy(self, logits: Array, labels: Array) -> tuple[Array, Array]:
        """(losses of the rows, probabilities): −log softmax(logits)[label], and the softmax."""

    def sgd_update(
        self, w: Array, g: Array, v: Array, lr: float, momentum: float, weight_decay: float, nesterov: bool
    ) -> None:
        """In place: v ← momentum·v + lr·(g + weight_decay·w); w ← w − v (Nesterov: the step momentum·v looks ahead)."""


def kernel_set(name: str = "numpy") -> Kernels:
    """The kernel set called `name`. Raises UserError for an unknown one."""
    from mgwfbp.kernels import numpy_set

    if name != "numpy":
        raise unknown_name("kernel set", name, ["numpy"])
    return numpy_set
