"""Tests of this folder run under mpirun: `mpirun -n 2 python -m pytest --with-mpi tests/mpi`."""

from __future__ import annotations

import tempfile

import pytest
from mpi4py import MPI

from mgwfbp.comm import World


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/mpi/" in item.path.as_posix():
            item.add_marker(pytest.mark.mpi(min_size=2))


@pytest.fixture(scope="session")
def world():
    return World()


@pytest.fixture
def shared_folder(world):
    """One new folder for all ranks."""
    folder = world.comm.bcast(tempfile.mkdtemp(prefix="mgwfbp-test-") if world.rank == 0 else None)
    yield folder
    world.comm.Barrier()


@pytest.fixture(autouse=True)
def _in_step():
    """All ranks leave a test before one begins the next."""
    yield
    MPI.COMM_WORLD.Barrier()


def first_ranks(world, count):
    """A World of the first `count` ranks; None on the others, which then just go on to the next collective."""
    comm = world.comm.Split(0 if world.rank < count else MPI.UNDEFINED, world.rank)
    return World(comm) if comm != MPI.COMM_NULL else None
