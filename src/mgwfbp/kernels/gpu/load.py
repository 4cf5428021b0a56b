"""Whether the GPU set can be used here, and its making for CuPy's current device."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

from mgwfbp.errors import UserError
from mgwfbp.kernels.gpu.cupy_set import CupySet, to_stderr

MATHS = ("fp32", "tf32")
CUDA_13, FIRST_OF_13 = 13000, 75  # CUDA 13 compiles for no card below compute capability 7.5 (Turing)


def why_not() -> str | None:
    """Why this set cannot be used here, in a few words; None if it can. Imports CuPy, if it is installed."""
    if find_spec("cupy") is None:
        return "CuPy is not installed"
    try:
        import cupy

        return _too_old(cupy) if cupy.is_available() else "CuPy finds no GPU or no driver"
    except Exception as error:  # a broken installation says so in many ways
        return f"CuPy cannot be used: {str(error).strip().splitlines()[0] if str(error).strip() else error!r}"


def _too_old(cupy: Any) -> str | None:
    """Why nothing can be compiled for CuPy's current card; None if it can."""
    capability = int(cupy.cuda.Device().compute_capability)
    if cupy.cuda.runtime.runtimeGetVersion() < CUDA_13 or capability >= FIRST_OF_13:
        return None
    return (
        f"the GPU has compute capability {capability / 10}, which CUDA 13 no longer compiles for: "
        "pip uninstall cupy-cuda13x, then pip install 'mgwfbp[cuda12]'"
    )


def load(math: str = "fp32", say: Callable[[str], None] = to_stderr) -> CupySet:
    """The set on CuPy's current device, so choose the device before; one `math` a process.

    `math` is "fp32", or "tf32": products and convolutions on tensor cores, their inputs rounded to 10 bits. Without
    cuDNN the set's `note` says so; `say` is told of convolutions that have no plan. From here on the calling thread
    computes in the set's stream. Raises UserError if there is no GPU.
    """
    if math not in MATHS:
        raise UserError(f"unknown math {math!r}: known are {', '.join(MATHS)}")
    reason = why_not()
    if reason:
        raise UserError(f"kernel set cupy: {reason}; run on a GPU node with 'mgwfbp[cuda13]' installed, or use fast")
    found = _made(math)
    found.say = say
    if found.xp.cuda.get_current_stream() != found.stream:
        # Not use(): the end of any later `with` of another stream would bring back the default one.
        found.stream.__enter__()
    return found


@cache
def _made(math: str) -> CupySet:
    os.environ["CUPY_TF32"] = str(int(math == "tf32"))  # CuPy reads it before its first product
    import cupy

    from mgwfbp.kernels.gpu.launch import compile_all, launch

    # Not the default stream: work in that waits for all others of the process, and they for it. Open MPI copies device
    # memory in a stream of that kind, so each message would have waited for all of backward that was put in before.
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        compile_all("float32")
        found = _with_cudnn(cupy, launch, math)
    found.stream = stream
    return found


def _with_cudnn(cupy: Any, launch: Any, math: str) -> CupySet:
    """The set with cuDNN where that works, else with a note on why it does not."""
    try:
        from mgwfbp.kernels.gpu.cudnn_set import CudnnSet
        from mgwfbp.kernels.gpu.plans import Device

        device = Device()
        device.probe()
    except Exception as error:  # not installed, not loadable, of another version: cuBLAS alone will do
        reason = next(iter(str(error).strip().splitlines()), repr(error))
        note = f"cuDNN cannot be used ({reason}); convolutions are im2col and products by cuBLAS"
        return CupySet(cupy, launch, math, note)
    return CudnnSet(cupy, launch, device, math)
