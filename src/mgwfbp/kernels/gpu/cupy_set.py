"""The GPU kernel set: CuPy arrays, our CUDA kernels, cuBLAS for products, and cuDNN for convolutions where it is found.

Nothing here waits for the device: every primitive is put into CuPy's current stream and returns. Results do not depend
on the order of threads, so a run can be repeated bit by bit on the same card. This file imports no CuPy;
the tests run the same code on NumPy arrays with the kernels compiled for the host.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from mgwfbp.kernels.base import overrides
from mgwfbp.kernels.gpu.gemm_conv import GemmConvolutions, Launch
from mgwfbp.kernels.types import Array, Pair

SUM_ROWS = 256  # rows that one thread adds up in float32: with more, gradients were off by 7e-3
MANY_THREADS = 1 << 17  # enough to fill a large card
FEW_LANES = 64  # partial sums that one thread adds up in float64


def to_stderr(text: str) -> None:
    """A line for the user."""
    sys.stderr.write(text + "\n")


class CupySet(GemmConvolutions):
    """The set for arrays of the module `xp`, with kernels started by `launch`; convolutions are matrix products.

    `note` is what the user should know about this set, if anything, and `say` is told what is found later. `stream` is
    what it computes in: `load` makes it the current one of the thread that asks.
    """

    name = "cupy"
    values_at_once = 2**24  # 111 images of 224×224: fewer would not fill a large card
    stream: Any = None

    def __init__(self, xp: Any, launch: Launch, math: str = "fp32", note: str | None = None) -> None:
        super().__init__(xp, launch)
        self.math, self.note = math, note
        self.say: Callable[[str], None] = to_stderr

    @overrides
    def now(self) -> tuple[Any, int]:
        # An event in the current stream, and the time at which it was put there.
        event = self.xp.cuda.Event(block=True)  # who waits for it sleeps: the comm thread may need the core
        event.record(self.xp.cuda.get_current_stream())
        return event, time.perf_counter_ns()

    @overrides
    def times(self, marks: Sequence[tuple[Any, int]]) -> list[int]:
        # The first mark is taken to have been passed when it was made, the device being idle.
        for event, _ in marks:
            event.synchronize()
        first, start_ns = marks[0]
        elapsed_ms = self.xp.cuda.get_elapsed_time
        return [start_ns + round(elapsed_ms(first, event) * 1e6) for event, _ in marks]

    def _whole(self, *arrays: Array) -> list[Array]:
        """The arrays, copied where they are not contiguous."""
        return [self.xp.ascontiguousarray(array) for array in arrays]

    @overrides
    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Array:
        # By cuBLAS.
        return self.xp.matmul(a, b, out=out)

    # Passes over elements

    @overrides
    def relu(self, x: Array) -> Array:
        (x,) = self._whole(x)
        y = self.xp.empty(x.shape, x.dtype)
        self.launch("relu", x.dtype, x.size, x, y, x.size)
        return y

    @overrides
    def relu_gradient(self, y: Array, dy: Array) -> Array:
        y, dy = self._whole(y, dy)
        dx = self.xp.empty(dy.shape, dy.dtype)
        self.launch("relu_gradient", dy.dtype, dy.size, y, dy, dx, dy.size)
        return dx

    @overrides
    def add(self, a: Array, b: Array, relu: bool) -> Array:
        a, b = self._whole(a, b)
        y = self.xp.empty(a.shape, a.dtype)
        self.launch("add", a.dtype, a.size, a, b, y, relu, a.size)
        return y

    @overrides
    def sgd_update(
        self, w: Array, g: Array, v: Array, lr: float, momentum: float, weight_decay: float, nesterov: bool
    ) -> None:
        # The arrays are contiguous.
        self.launch("sgd_update", w.dtype, w.size, w, g, v, lr, momentum, weight_decay, nesterov, w.size)

    @overrides
    def softmax_cross_entropy(self, logits: Array, labels: Array) -> tuple[Array, Array]:
        # A label that is no class makes its row's loss NaN.
        (logits,) = self._whole(logits)
        rows, classes = logits.shape
        losses, probabilities = (self.xp.empty(shape, logits.dtype) for shape in (rows, logits.shape))
        labels = self.xp.ascontiguousarray(labels, self.xp.int64)
        self.launch("softmax_cross_entropy", logits.dtype, rows, logits, labels, losses, probabilities, classes, rows)
        return losses, probabilities

    # Pooling and LRN

    def _windows(
        self, kernel: str, *arrays: Array, x: tuple[int, ...], y: Pair, over_x: bool, window: tuple[int, ...]
    ) -> None:
        """Start a pooling kernel, one thread an element of x or of y; `window` is kernel, stride and pad."""
        n, height, width, channels = x
        rows, length = (n * height, width * channels) if over_x else (n * y[0], y[1] * channels)
        self.launch(kernel, arrays[1].dtype, length, *arrays, n, height, width, channels, *y, *window, rows=rows)

    @overrides
    def max_pool(self, x: Array, kernel: Pair, stride: Pair, pad: Pair, size: Pair) -> Array:
        (x,) = self._whole(x)
        y = self.xp.empty((len(x), *size, x.shape[3]), x.dtype)
        self._windows("max_pool", x, y, x=x.shape, y=size, over_x=False, window=(*kernel, *stride, *pad))
        return y

    @overrides
    def max_pool_gradient(self, x: Array, y: Array, dy: Array, kernel: Pair, stride: Pair, pad: Pair) -> Array:
        # First where each window's largest value lies, then who is meant.
        x, y, dy = self._whole(x, y, dy)
        window, places, dx = (*kernel, *stride, *pad), self.xp.empty(y.shape, self.xp.int32), self.xp.empty_like(x)
        self._windows("max_pool_places", x, y, places, x=x.shape, y=y.shape[1:3], over_x=False, window=window)
        self._windows("max_pool_gradient", places, dy, dx, x=x.shape, y=y.shape[1:3], over_x=True, window=window)
        return dx

    @overrides
    def average_pool(self, x: Array, kernel: Pair, stride: Pair, pad: Pair, share: Array) -> Array:
        (x,) = self._whole(x)
        size, window = share.shape[:2], (*kernel, *stride, *pad)
        y = self.xp.empty((len(x), *size, x.shape[3]), x.dtype)
        self._windows("average_pool", x, share, y, x=x.shape, y=size, over_x=False, window=window)
        return y

    @overrides
    def average_pool_gradient(
        self, dy: Array, x_shape: tuple[int, ...], kernel: Pair, stride: Pair, pad: Pair, share: Array
    ) -> Array:
        (dy,) = self._whole(dy)
        size, window, dx = share.shape[:2], (*kernel, *stride, *pad), self.xp.empty(x_shape, dy.dtype)
        self._windows("average_pool_gradient", dy, share, dx, x=x_shape, y=size, over_x=True, window=window)
        return dx

    @overrides
    def lrn(self, x: Array, size: int, alpha: float, beta: float, k: float) -> tuple[Array, Array]:
        (x,) = self._whole(x)
        y, scale, step = self.xp.empty_like(x), self.xp.empty_like(x), self._step(x)
        numbers = (size // 2, alpha / size, beta, k, x.shape[-1], x.size, step)
        self.launch("lrn", x.dtype, step, x, y, scale, *numbers)
        return y, scale

    @overrides
    def lrn_gradient(self, x: Array, y: Array, scale: Array, dy: Array, size: int, alpha: float, beta: float) -> Array:
        x, y, scale, dy = self._whole(x, y, scale, dy)
        dx, step = self.xp.empty_like(x), self._step(x)
        numbers = (size // 2, 2 * alpha * beta / size, beta, x.shape[-1], x.size, step)
        self.launch("lrn_gradient", x.dtype, step, x, y, scale, dy, dx, *numbers)
        return dx

    # Per-channel work: a thread keeps its channel and goes on by `step` elements, a multiple of the channels (norm.cu)

    def _step(self, x: Array, most_rows: int | None = None) -> int:
        """Elements from one of a thread's to its next: enough threads to fill the card, of at most `most_rows` each."""
        channels = x.shape[-1]
        rows = x.size // channels
        lanes = max(-(-MANY_THREADS // channels), -(-rows // most_rows) if most_rows else 1)
        return max(1, min(rows, lanes)) * channels

    def _lanes(self, kernel: str, planes: int, *arrays: Array, numbers: tuple[int, ...] = ()) -> Array:
        """Partial sums by `kernel`, added up until FEW_LANES or fewer are left: float64 (lanes, planes, channels)."""
        x = arrays[0]
        step, channels = self._step(x, SUM_ROWS), x.shape[-1]
        lanes, width = step // channels, planes * channels
        sums = self.xp.empty((lanes, planes, channels), self.xp.float64)
        self.launch(kernel, x.dtype, step, *arrays, sums, *numbers, x.size, step)
        while lanes > FEW_LANES:
            before, lanes = sums, -(-lanes // FEW_LANES)
            sums = self.xp.empty((lanes, planes, channels), self.xp.float64)
            self.launch("add_lanes", x.dtype, sums.size, before, sums, before.size, lanes * width)
        return sums

    def _last_sums(self, sums: Array, dtype: Any) -> Array:
        """The lanes' sums as (planes, channels) of `dtype`."""
        total = self.xp.empty(sums.shape[1:], dtype)
        self.launch("last_sums", dtype, total.size, sums, total, sums.size, total.size)
        return total

    @overrides
    def channel_sums(self, x: Array) -> Array:
        (x,) = self._whole(x)
        if not x.size:
            return self.xp.zeros(x.shape[-1], x.dtype)
        return self._last_sums(self._lanes("channel_sums", 1, x), x.dtype)[0]

    @overrides
    def channel_moments(self, x: Array) -> tuple[Array, Array]:
        # In one pass over x.
        (x,) = self._whole(x)
        channels = x.shape[-1]
        sums = self._lanes("channel_moments", 2, x, numbers=(channels,))
        mean, variance = self.xp.empty(channels, x.dtype), self.xp.empty(channels, x.dtype)
        rows = x.size // channels
        self.launch("last_moments", x.dtype, channels, sums, mean, variance, channels, sums.size, rows)
        return mean, variance

    @overrides
    def batch_norm(
        self, x: Array, mean: Array, inverse_std: Array, gamma: Array, beta: Array, more: Array | None, relu: bool
    ) -> Array:
        (x,) = self._whole(x)
        more = None if more is None else self.xp.ascontiguousarray(more)
        y, step = self.xp.empty_like(x), self._step(x)
        arrays = (x, mean, inverse_std, gamma, beta, more, y)
        self.launch("batch_norm", x.dtype, step, *arrays, relu, x.shape[-1], x.size, step)
        return y

    @overrides
    def batch_norm_sums(
        self, x: Array, y: Array, dy: Array, mean: Array, inverse_std: Array, relu: bool
    ) -> tuple[Array, Array]:
        x, y, dy = self._whole(x, y, dy)
        lanes = self._lanes("batch_norm_sums", 2, x, y, dy, mean, inverse_std, numbers=(relu, x.shape[-1]))
        sums = self._last_sums(lanes, x.dtype)
        return sums[0], sums[1]

    @overrides
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
        x, y, dy = self._whole(x, y, dy)
        dx, step = self.xp.empty_like(x), self._step(x)
        arrays = (x, y, dy, mean, inverse_std, scale, mean_dy, mean_dy_x, dx)
        self.launch("batch_norm_gradient", x.dtype, step, *arrays, relu, x.shape[-1], x.size, step)
        return dx
