"""The array primitives under the layers, and the sets that provide them: NumPy's, a fast CPU set, and the GPU's."""

from mgwfbp.kernels.base import Kernels, overrides
from mgwfbp.kernels.choose import kernel_set, openmp_binding, threads, why_not_fast
from mgwfbp.kernels.memory import keep_freed_memory
from mgwfbp.kernels.types import Array, Pair, positions

__all__ = [
    "Array",
    "Kernels",
    "Pair",
    "keep_freed_memory",
    "kernel_set",
    "openmp_binding",
    "overrides",
    "positions",
    "threads",
    "why_not_fast",
]
