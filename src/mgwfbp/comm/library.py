"""Which MPI library this is."""

from __future__ import annotations

from mgwfbp.comm.mpi import MPI


def mpi_version() -> str:
    """The MPI library's name and version: "MPICH 5.0.2". Starts no MPI."""
    first = MPI.Get_library_version().strip("\0 ").splitlines()[0].partition(",")[0]
    return " ".join(first.replace("Version:", "").split())
