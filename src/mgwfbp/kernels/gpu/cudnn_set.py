"""The GPU set with cuDNN's convolutions; 1×1 ones, and what cuDNN has no plan for, stay matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mgwfbp.kernels.base import overrides
from mgwfbp.kernels.gpu.cudnn import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Shape
from mgwfbp.kernels.gpu.cupy_set import CupySet
from mgwfbp.kernels.gpu.gemm_conv import Launch, pixels_are_windows
from mgwfbp.kernels.types import Array, Pair


class Convolver(Protocol):
    """What does convolutions: cuDNN on the current device (plans.py). `say` hears what it cannot, `about` names it."""

    say: Callable[[str], None]
    about: str

    def convolve(self, operation: str, shape: Shape, first: Array, second: Array, result: Array) -> bool:
        """Compute `result` from `first` and `second`, or return False: it has no plan for that."""


class CudnnSet(CupySet):
    """The set whose convolutions `device` does where it can."""

    def __init__(self, xp: Any, launch: Launch, device: Convolver, math: str = "fp32") -> None:
        super().__init__(xp, launch, math)
        self.device = device
        device.say = lambda text: self.say(text)

    def _shape(self, x: tuple[int, ...], weight: Array, stride: Pair, pad: Pair, groups: int) -> Shape | None:
        """The convolution's shape, `weight` having the weight's shape and element type; None where a product does it.

        The products do what is empty, and what is a product as it is.
        """
        if not x[0] or (groups == 1 and pixels_are_windows(weight.shape, stride, pad)):
            return None
        return Shape(x, weight.shape, stride, pad, groups, weight.dtype.name, self.math)

    def _transposed(self, matrix: Array) -> Array:
        """A matrix with its axes exchanged, in memory, too."""
        rows, columns = matrix.shape
        out = self.xp.empty((columns, rows), matrix.dtype)
        self.launch("transpose", matrix.dtype, rows, matrix, out, rows, columns, rows=columns)
        return out

    @overrides
    def conv2d(self, x: Array, weight: Array, bias: Array | None, stride: Pair, pad: Pair, groups: int) -> Array:
        shape = self._shape(x.shape, weight, stride, pad, groups)
        if shape:
            y, ohwi = self.xp.empty(shape.y, x.dtype), self._transposed(weight.reshape(-1, weight.shape[3]))
            if self.device.convolve(FORWARD, shape, self.xp.ascontiguousarray(x), ohwi, y):
                if bias is not None:
                    y += bias
                return y
        return super().conv2d(x, weight, bias, stride, pad, groups)

    @overrides
    def conv2d_input_gradient(
        self, dy: Array, weight: Array, x_shape: tuple[int, ...], stride: Pair, pad: Pair, groups: int
    ) -> Array:
        shape = self._shape(tuple(x_shape), weight, stride, pad, groups)
        if shape:
            dx, ohwi = self.xp.empty(x_shape, dy.dtype), self._transposed(weight.reshape(-1, weight.shape[3]))
            if self.device.convolve(INPUT_GRADIENT, shape, self.xp.ascontiguousarray(dy), ohwi, dx):
                return dx
        return super().conv2d_input_gradient(dy, weight, x_shape, stride, pad, groups)

    @overrides
    def conv2d_weight_gradient(self, x: Array, dy: Array, out: Array, stride: Pair, pad: Pair, groups: int) -> None:
        shape = self._shape(x.shape, out, stride, pad, groups)
        if shape:
            ohwi = self.xp.empty((out.shape[3], out.size // out.shape[3]), out.dtype)
            arrays = self.xp.ascontiguousarray(x), self.xp.ascontiguousarray(dy), ohwi
            if self.device.convolve(WEIGHT_GRADIENT, shape, *arrays):
                matrix = out.reshape(ohwi.shape[::-1])
                self.launch("transpose", out.dtype, len(ohwi), ohwi, matrix, *ohwi.shape, rows=len(matrix))
                return
        super().conv2d_weight_gradient(x, dy, out, stride, pad, groups)
