"""The array primitives that the layers call: what each means, and its body in NumPy, written once.

`Kernels` itself is the pure NumPy set, the reference. A faster set is a subclass that overrides what it does better,
method by method. Every array is NHWC (batch, height, width, channels) and of one floating dtype; convolution weights
are HWIO: (kernel height, kernel width, in / groups, out). Gradients are written into the `out` views given.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgwfbp.kernels.numpy.conv import Convolutions
from mgwfbp.kernels.numpy.elements import Elements
from mgwfbp.kernels.numpy.lrn import LRN
from mgwfbp.kernels.numpy.norm import BatchNorm
from mgwfbp.kernels.numpy.pool import Pooling
from mgwfbp.kernels.types import Method


class Kernels(Convolutions, Pooling, LRN, BatchNorm, Elements):
    """The pure NumPy set, and the base of all others. `xp` is the array module.

    `values_at_once` are the values of images that evaluation puts through a net at a time.
    """

    name = "numpy"
    xp: Any = np
    values_at_once = 2**20  # more than that leaves the caches

    def now(self) -> Any:
        """A mark of this point of the computation, for `times`."""
        return time.perf_counter_ns()  # NumPy returns when it is done

    def times(self, marks: Sequence[Any]) -> list[int]:
        """The `time.perf_counter_ns()` at which each mark was passed; the first is the oldest. A GPU is waited for."""
        return list(marks)


def overrides(method: Method) -> Method:
    """`method` with the docstring of the one of `Kernels` that it overrides. Raises AttributeError if there is none."""
    method.__doc__ = getattr(Kernels, method.__name__).__doc__
    return method
