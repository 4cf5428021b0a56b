"""Starting our CUDA kernels through CuPy, which compiles them once and caches the result on disk."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np

from mgwfbp.kernels.gpu import sources


@cache
def module(family: str, dtype: str) -> Any:
    """The compiled source of a family for one element type, "float32" or "float64"."""
    element = {"float32": "float", "float64": "double"}[dtype]
    return cupy.RawModule(code=sources.source(family), options=(f"-DELEMENT={element}", "--std=c++17"))


@cache
def function(kernel: str, dtype: str) -> Any:
    """One kernel of its module."""
    return module(sources.declarations()[kernel].family, dtype).get_function(kernel)


def compile_all(dtype: str) -> None:
    """Compile all kernels for one element type, or read them from CuPy's cache: one rank of a machine goes first."""
    for family in sources.FAMILIES:
        module(family, dtype).compile()


def launch(kernel: str, dtype: Any, width: int, *arguments: Any, rows: int = 1) -> None:
    """Start `kernel` for `rows` rows of `width` elements of `dtype`, on CuPy's current stream.

    Returns before it has run. `arguments` are the kernel's own, in the order of its declaration (`sources`).
    """
    blocks = sources.grid(width, rows)
    threads = (sources.THREADS,)
    function(kernel, np.dtype(dtype).name)(blocks, threads, tuple(sources.checked(kernel, dtype, arguments)))
