"""The array primitives that the layers call, and the sets that provide them.

Layers are written once; a kernel set decides how the heavy loops run. Every array is NHWC (batch, height, width,
channels) and of one floating dtype; convolution weights are HWIO: (kernel height, kernel width, in / groups, out).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Protocol

from threadpoolctl import threadpool_limits

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

    name: str
    xp: ModuleType

    def now(self) -> Any:
        """A mark of this point of the computation, for `times`."""

    def times(self, marks: Sequence[Any]) -> list[int]:
        """The `time.perf_counter_ns()` at which each mark was passed; the first is the oldest. A GPU is waited for."""

    def conv2d(self, x: Array, weight: Array, bias: Array | None, stride: Pair, pad: Pair, groups: int) -> Array:
        """y[n,i,j,o] = Σ x[n, i·s+u−p, j·s+v−p, c] · weight[u,v,c,o] + bias[o]."""

    def conv2d_weight_gradient(self, x: Array, dy: Array, out: Array, stride: Pair, pad: Pair, groups: int) -> None:
        """Write dL/dweight into `out`, of the weight's shape."""

    def conv2d_input_gradient(
        self, dy: Array, weight: Array, x_shape: tuple[int, ...], stride: Pair, pad: Pair, groups: int
    ) -> Array:
        """dL/dx, of shape `x_shape`."""

    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Array:
        """a @ b for matrices, written into `out` if it is given."""

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

    def batch_norm(
        self, x: Array, mean: Array, inverse_std: Array, gamma: Array, beta: Array, more: Array | None, relu: bool
    ) -> Array:
        """gamma · x̂ + beta (+ `more`, of x's shape), each channel its own; max(…, 0) of it with `relu`.

        x̂ = (x − mean) · inverse_std.
        """

    def batch_norm_sums(
        self, x: Array, y: Array, dy: Array, mean: Array, inverse_std: Array, relu: bool
    ) -> tuple[Array, Array]:
        """(Σ dy, Σ dy·x̂) over all axes but the last; with `relu` dy counts only where y > 0."""

    def batch_norm_gradient(
        self,
        x: Array,
        y: Array,
        dy: Array,
        mean: Array,
        inverse_std: Array,
        scale: Array,
        mean_dy: Array,
        mean_dy_x: Array,
        relu: bool,
    ) -> Array:
        """scale · (dy − mean_dy − x̂ · mean_dy_x), each channel its own; with `relu` dy counts only where y > 0."""

    def add(self, a: Array, b: Array, relu: bool) -> Array:
        """a + b; max(…, 0) of it with `relu`."""

    def softmax_cross_entropy(self, logits: Array, labels: Array) -> tuple[Array, Array]:
        """(losses of the rows, probabilities): −log softmax(logits)[label], and the softmax."""

    def sgd_update(
        self, w: Array, g: Array, v: Array, lr: float, momentum: float, weight_decay: float, nesterov: bool
    ) -> None:
        """In place: v ← momentum·v + lr·(g + weight_decay·w); w ← w − v (Nesterov: the step momentum·v looks ahead)."""


def kernel_set(name: str | None = None, *, quiet: bool = False, math: str = "fp32") -> Kernels:
    """The kernel set called `name`: numpy, fast or cupy.

    By default it is what MGWFBP_KERNELS names, else cupy where it is installed and finds a GPU, else fast where it is
    installed, else numpy. `math` is cupy's: "fp32", or "tf32" for tensor cores. Where CuPy is installed and finds no
    GPU, and where a fast set that was asked for or is installed cannot be loaded, one line on stderr says which set
    stands in and why (not with `quiet`). Raises UserError for an unknown name, and for cupy without a GPU.
    """
    wanted = name or os.environ.get("MGWFBP_KERNELS") or None
    if wanted not in (None, "numpy", "fast", "cupy"):
        raise unknown_name("kernel set", wanted, ["cupy", "fast", "numpy"])
    say = (lambda text: None) if quiet else _say_once
    if wanted == "cupy" or (wanted is None and _has_gpu(say)):
        from mgwfbp.kernels import cupy_set

        found = cupy_set.load(math)
        if found.note:
            say(f"mgwfbp: {found.note}")
        return found
    from mgwfbp.kernels import numpy_set
    from mgwfbp.kernels.memory import keep_freed_memory

    keep_freed_memory()
    if wanted == "numpy" or (wanted is None and find_spec("numba") is None):
        return numpy_set
    try:
        from mgwfbp.kernels import fast_set

        fast_set.load()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        say(f"mgwfbp: the fast kernels cannot be loaded ({error}); using NumPy, pip install 'mgwfbp[fast]'")
        return numpy_set
    return fast_set


def _has_gpu(say: Callable[[str], None]) -> bool:
    """Whether the cupy set can be used; says why not where CuPy is installed. Imports CuPy only if it is."""
    if find_spec("cupy") is None:
        return False
    from mgwfbp.kernels import cupy_set

    reason = cupy_set.why_not()
    if reason:
        say(f"mgwfbp: {reason}; using the CPU")
    return reason is None


@cache
def _say_once(text: str) -> None:
    sys.stderr.write(text + "\n")


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let BLAS, OpenMP and numba use `count` threads for as long as this lasts; load the kernel set before."""
    numba = sys.modules.get("numba")
    with threadpool_limits(count):
        if numba is not None:
            before = numba.get_num_threads()
            numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
        try:
            yield
        finally:
            if numba is not None:
                numba.set_num_threads(before)
