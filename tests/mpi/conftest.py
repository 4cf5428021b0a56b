"""Tests of this folder run under mpirun: `mpirun -n 2 python -m pytest --with-mpi tests/mpi`."""

from __future__ import annotations

import sys
import tempfile

import pytest
from mpi4py import MPI

from mgwfbp.comm import World


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/mpi/" in item.path.as_posix():
            item.add_marker(pytest.mark.mpi(min_size=2))


def pytest_unconfigure(config):
    """A test that failed on one rank leaves the others waiting for it: end the whole run, now that it is told."""
    session = config.pluginmanager.get_plugin("session")
    if MPI.COMM_WORLD.size > 1 and session is not None and session.testsfailed:
        sys.stdout.flush()
        MPI.COMM_WORLD.Abort(1)


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
