"""Which transport fits these arrays and this MPI? Decided from what the library says of itself, and said."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from mgwfbp.comm.device import DeviceTransport, StagedTransport
from mgwfbp.comm.transport import HostTransport
from mgwfbp.comm.world import MPI
from mgwfbp.errors import UserError, unknown_name

NAMES = ("auto", "host", "staged", "device", "device-blocking")
GPU_SUPPORT_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA in MPICH's mpi.h


class Choice(NamedTuple):
    """A transport's name and why it was taken."""

    name: str
    reason: str


def cuda_support() -> bool | None:
    """Whether the MPI library says that it takes device pointers; None if it cannot be asked.

    MPIX_Query_cuda_support() is Open MPI's and MVAPICH's, MPIX_GPU_query_support(kind, *answer) MPICH's and Cray's.
    """
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
    """The transport for `wanted` (one of NAMES), arrays `on_device` or not, and an MPI called `vendor`.

    `cuda` is `cuda_support()`. Raises UserError for an unknown name, or one that cannot carry these arrays.
    """
    if wanted not in NAMES:
        raise unknown_name("transport", wanted, NAMES)
    if not on_device:
        if wanted in ("auto", "host"):
            return Choice("host", "the arrays are NumPy's")
        raise UserError(f"--transport {wanted} is for gradients on a GPU (--kernels cupy); use auto or host")
    if wanted == "host":
        raise UserError("--transport host is for NumPy arrays; on a GPU use auto, staged, device or device-blocking")
    if wanted != "auto":
        return Choice(wanted, "it was asked for")
    if cuda is None:
        return Choice("staged", f"{vendor} does not say whether it takes device memory")
    if not cuda:
        return Choice("staged", f"{vendor} says that it was built, or started, without CUDA")
    if vendor == "Open MPI":
        return Choice("device-blocking", "Open MPI takes device memory, but not in non-blocking all-reduces")
    return Choice("device", f"{vendor} says that it takes device memory")


def choose_transport(wanted: str, xp: Any) -> Choice:
    """The transport for arrays of the module `xp` and the MPI that is loaded. Raises UserError as `choose` does."""
    on_device = xp is not np
    return choose(wanted, on_device, MPI.get_vendor()[0], cuda_support() if on_device else None)


def make_transport(choice: Choice, comm: MPI.Intracomm, xp: Any, elements: int) -> HostTransport:
    """The transport of `choice` for arrays of the module `xp` with at most `elements` elements."""
    if choice.name == "host":
        transport = HostTransport(comm)
    elif choice.name == "staged":
        transport = StagedTransport(comm, xp, elements)
    else:
        transport = DeviceTransport(comm, xp, blocking=choice.name == "device-blocking")
    transport.reason = choice.reason
    return transport
