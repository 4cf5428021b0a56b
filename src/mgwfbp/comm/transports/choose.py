"""Which transport fits these arrays and this MPI? Decided from what the library says of itself, and said."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from mgwfbp.comm.mpi import MPI, start
from mgwfbp.comm.transports.registry import TRANSPORTS, transport_names
from mgwfbp.errors import UserError, unknown_name

GPU_SUPPORT_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA in MPICH's mpi.h


class Choice(NamedTuple):
    """A transport's name and why it was taken."""

    name: str
    reason: str


def cuda_support() -> bool | None:
    """Whether the MPI library says that it takes device pointers; None if it cannot be asked.

    MPIX_Query_cuda_support() is Open MPI's and MVAPICH's, MPIX_GPU_query_support(kind, *answer) MPICH's and Cray's.
    """
    start()  # MPICH's answer before that is a crash
    for library in _mpi_libraries():
        if hasattr(library, "MPIX_GPU_query_support"):
            answer = ctypes.c_int(0)
            if library.MPIX_GPU_query_support(GPU_SUPPORT_CUDA, ctypes.byref(answer)) == 0:
                return bool(answer.value)
        if hasattr(library, "MPIX_Query_cuda_support"):
            return bool(library.MPIX_Query_cuda_support())
    return None


def _mpi_libraries() -> list[ctypes.CDLL]:
    """The MPI libraries that this process has loaded already; mpi4py keeps their names to itself."""
    paths = [MPI.__file__]
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
            paths += {line.split()[-1] for line in stream if "/libmpi" in line or "/libmpich" in line}
    except OSError:  # not Linux
        pass
    return [library for library in map(_loaded, sorted(set(paths))) if library is not None]


def _loaded(path: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(path)
    except OSError:
        return None


def choose(wanted: str, on_device: bool, vendor: str, cuda: bool | None) -> Choice:
    """The transport for `wanted` (auto, or one of the registry), arrays `on_device` or not, and an MPI called `vendor`.

    `cuda` is `cuda_support()`. Raises UserError for an unknown name, or one that cannot carry these arrays.
    """
    if wanted not in transport_names():
        raise unknown_name("transport", wanted, transport_names())
    if wanted in ("auto", "host") and not on_device:
        return Choice("host", "the arrays are NumPy's")
    if wanted != "auto":
        others = ", ".join(name for name, entry in TRANSPORTS.items() if entry.on_device == on_device)
        if TRANSPORTS[wanted].on_device and not on_device:
            raise UserError(
                f"--transport {wanted} is for gradients on a GPU (--kernels cupy); use one of auto, {others}"
            )
        if on_device and not TRANSPORTS[wanted].on_device:
            raise UserError(f"--transport {wanted} is for NumPy arrays; on a GPU use one of auto, {others}")
        return Choice(wanted, "it was asked for")
    if cuda is None:
        return Choice("staged", f"{vendor} does not say whether it takes device memory")
    if not cuda:
        return Choice("staged", f"{vendor} says that it was built, or started, without CUDA")
    if vendor == "Open MPI":
        # 4.1 says how it was compiled, even where CUDA is switched off. Its non-blocking collectives do not take device
        # memory, and the blocking all-reduce copies it to the host and back, in one piece of pageable memory.
        return Choice("staged", "Open MPI would copy through the host, too; with UCC or HCOLL try device-blocking")
    if vendor.startswith(("MPICH", "Cray")):
        return Choice("device", f"{vendor} says that it takes device memory")
    return Choice(
        "staged", f"whether {vendor}'s non-blocking messages take device memory is not known; try device-blocking"
    )


def choose_transport(wanted: str, xp: Any) -> Choice:
    """The transport for arrays of the module `xp` and the MPI that is loaded. Raises UserError as `choose` does."""
    on_device = xp is not np
    return choose(wanted, on_device, vendor(), cuda_support() if on_device else None)


def vendor() -> str:
    """The name of the MPI library."""
    return MPI.get_vendor()[0]
