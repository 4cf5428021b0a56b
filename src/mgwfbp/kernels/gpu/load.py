"""Whether the GPU set can be used here, and its making for CuPy's current device."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

from mgwfbp.errors import UserError
from mgwfbp.kernels.gpu.cupy_set import CupySet

MATHS = ("fp32", "tf32")


def why_not() -> str | None:
    """Why this set cannot be used here, in a few words; None if it can. Imports CuPy, if it is installed."""
    if find_spec("cupy") is None:
        return "CuPy is not installed"
    try:
        import cupy

        return None if cupy.is_available() else "CuPy finds no GPU or no driver"
    except Exception as error:  # a broken installation says so in many ways
        return f"CuPy cannot be used: {str(error).strip().splitlines()[0] if str(error).strip() else error!r}"


@cache
def load(math: str = "fp32") -> CupySet:
    """The set on CuPy's current device, so choose the device before; one `math` a process.

    `math` is "fp32", or "tf32": products and convolutions on tensor cores, their inputs rounded to 10 bits. Without
    cuDNN the set's `note` says so. Raises UserError if there is no GPU.
    """
    if math not in MATHS:
        raise UserError(f"unknown math {math!r}: known are {', '.join(MATHS)}")
    reason = why_not()
    if reason:
        raise UserError(f"kernel set cupy: {reason}; run on a GPU node with 'mgwfbp[cuda13]' installed, or use fast")
    os.environ["CUPY_TF32"] = str(int(math == "tf32"))  # CuPy reads it before its first product
    import cupy

    from mgwfbp.kernels.gpu.launch import launch

    try:
        from mgwfbp.kernels.gpu.cudnn_set import CudnnSet

        return CudnnSet(cupy, launch, math)
    except Exception as error:  # not installed, not loadable, of another version: cuBLAS alone will do
        note = f"cuDNN cannot be used ({error}); convolutions are im2col and products by cuBLAS"
        return CupySet(cupy, launch, math, note)
