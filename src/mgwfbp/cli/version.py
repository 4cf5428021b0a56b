"""What `mgwfbp --version` says: the versions that a report of a fault should name."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from mgwfbp.errors import UserError
from mgwfbp.version import __version__


def versions() -> str:
    """mgwfbp, Python, NumPy, MPI and the kernels' packages, a line each. Starts no MPI."""
    return "\n".join(
        [
            f"mgwfbp {__version__}",
            f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
            f"NumPy {np.__version__}",
            _mpi(),
            f"kernels: numpy{_with('numba', ', fast')}{_with('onednn-cpu-gomp', ' and oneDNN')}{_cupy()}",
        ]
    )


def _mpi() -> str:
    try:
        from mgwfbp.comm.library import mpi_version
    except UserError as error:
        return str(error)
    return f"mpi4py {version('mpi4py')} with {mpi_version()}"


def _with(package: str, name: str) -> str:
    """`name` with the version of its `package`, or nothing where that is not installed."""
    try:
        return f"{name} ({package} {version(package)})"
    except PackageNotFoundError:
        return ""


def _cupy() -> str:
    for package in ("cupy-cuda13x", "cupy-cuda12x", "cupy"):
        if found := _with(package, ", cupy"):
            return found
    return ""
