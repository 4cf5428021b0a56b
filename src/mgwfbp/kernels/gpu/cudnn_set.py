"""The GPU set with cuDNN's convolutions; 1×1 ones, and what cuDNN has no plan for, stay matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mgwfbp.kernels.base import overrides
from mgwfbp.kernels.gpu.cudnn import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Device, Plan, Shape
from mgwfbp.kernels.gpu.cupy_set import CupySet
from mgwfbp.kernels.gpu.gemm_conv import Launch, pixels_are_windows
from mgwfbp.kernels.types import Array, Pair


class CudnnSet(CupySet):
    """`plan` gives the plan of an operation and a shape, or None; by default it is cuDNN's on the current device."""

    def __init__(
        self, xp: Any, launch: Launch, math: str = "fp32", plan: Callable[[str, Shape], Plan | None] | None = None
    ) -> None:
        super().__init__(xp, launch, math)
        self.plan = plan or Device().plan

    def _plan(
        self, operation: str, x: tuple[int, ...], weight: Array, stride: Pair, pad: Pair, groups: int
    ) -> tuple[Plan | None, Shape]:
        """The plan (None where a product does it) and the shape; `weight` has the weight's shape and element type."""
        shape = Shape(x, weight.shape, stride, pad, groups, weight.dtype.name, self.math)
        product = not x[0] or (groups == 1 and pixels_are_windows(weight.shape, stride, pad))
        return None if product else self.plan(operation, shape), shape

    def _transposed(self, matrix: Array) -> Array:
        """A matrix with its axes exchanged, in memory, too."""
        rows, columns = matrix.shape
        out = self.xp.empty((columns, rows), matrix.dtype)
        self.launch("transpose", matrix.dtype, rows, matrix, out, rows, columns, rows=columns)
        return out

    @overrides
    def conv2d(self, x: Array, weight: Array, bias: Array | None, stride: Pair, pad: Pair, groups: int) -> Array:
        plan, shape = self._plan(FORWARD, x.shape, weight, stride, pad, groups)
        if plan is None:
            return super().conv2d(x, weight, bias, stride, pad, groups)
        y = self.xp.empty(shape.y, x.dtype)
        plan.run(self.xp.ascontiguousarray(x), self._transposed(weight.reshape(-1, weight.shape[3])), y)
        if bias is not None:
            y += bias
        return y

    @overrides
    def conv2d_input_gradient(
        self, dy: Array, weight: Array, x_shape: tuple[int, ...], stride: Pair, pad: Pair, groups: int
    ) -> Array:
        plan, _ = self._plan(INPUT_GRADIENT, tuple(x_shape), weight, stride, pad, groups)
        if plan is None:
            return super().conv2d_input_gradient(dy, weight, x_shape, stride, pad, groups)
        dx = self.xp.empty(x_shape, dy.dtype)
        plan.run(self.xp.ascontiguousarray(dy), self._transposed(weight.reshape(-1, weight.shape[3])), dx)
        return dx

    @overrides
    def conv2d_weight_gradient(self, x: Array, dy: Array, out: Array, stride: Pair, pad: Pair, groups: int) -> None:
        plan, _ = self._plan(WEIGHT_GRADIENT, x.shape, out, stride, pad, groups)
        if plan is None:
            super().conv2d_weight_gradient(x, dy, out, stride, pad, groups)
            return
        gradient = self.xp.empty((out.shape[3], out.size // out.shape[3]), out.dtype)
        plan.run(self.xp.ascontiguousarray(x), self.xp.ascontiguousarray(dy), gradient)
        matrix = out.reshape(gradient.shape[::-1])
        self.launch("transpose", out.dtype, len(gradient), gradient, matrix, *gradient.shape, rows=len(matrix))
