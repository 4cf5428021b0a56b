"""Passes over elements and the update by numba; products by oneDNN, whose threads are those of the convolutions."""

from __future__ import annotations

import numba
import numpy as np

from mgwfbp.kernels.base import Kernels
from mgwfbp.kernels.fast import onednn
from mgwfbp.kernels.fast.float32 import compiled, float32
from mgwfbp.kernels.types import Array


class FastElements(Kernels):
    """ReLU, sums of two, SGD, and products of matrices: BLAS has threads of its own, which would fight OpenMP's."""

    @float32
    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Array:
        if not all(4 in matrix.strides for matrix in (a, b)):
            return Kernels.matmul(self, a, b, out)
        if out is None:
            out = np.empty((a.shape[0], b.shape[1]), np.float32)
        onednn.gemm(a, b, out)
        return out

    @float32
    def relu(self, x: Array) -> Array:
        y = np.empty(x.shape, np.float32)
        _relu(np.ascontiguousarray(x).reshape(-1), y.reshape(-1))
        return y

    @float32
    def relu_gradient(self, y: Array, dy: Array) -> Array:
        dx = np.empty(y.shape, np.float32)
        _relu_gradient(np.ascontiguousarray(y).reshape(-1), np.ascontiguousarray(dy).reshape(-1), dx.reshape(-1))
        return dx

    @float32
    def add(self, a: Array, b: Array, relu: bool) -> Array:
        y = np.empty(a.shape, np.float32)
        floor = np.float32(0 if relu else -np.inf)
        _add(np.ascontiguousarray(a).reshape(-1), np.ascontiguousarray(b).reshape(-1), floor, y.reshape(-1))
        return y

    @float32
    def sgd_update(
        self, w: Array, g: Array, v: Array, lr: float, momentum: float, weight_decay: float, nesterov: bool
    ) -> None:
        _sgd(w, g, v, np.float32(lr), np.float32(momentum), np.float32(weight_decay), nesterov)


@compiled
def _relu(x, y):  # type: ignore[no-untyped-def]
    for i in numba.prange(len(y)):
        y[i] = max(x[i], np.float32(0))


@compiled
def _relu_gradient(y, dy, dx):  # type: ignore[no-untyped-def]
    for i in numba.prange(len(y)):
        dx[i] = dy[i] if y[i] > 0 else np.float32(0)


@compiled
def _add(a, b, floor, y):  # type: ignore[no-untyped-def]
    for i in numba.prange(len(y)):
        y[i] = max(a[i] + b[i], floor)


@compiled
def _sgd(w, g, v, lr, momentum, weight_decay, nesterov):  # type: ignore[no-untyped-def]
    for i in numba.prange(len(w)):
        step = lr * (g[i] + weight_decay * w[i])
        new = momentum * v[i] + step
        w[i] -= new + momentum * new - momentum * v[i] if nesterov else new
        v[i] = new
