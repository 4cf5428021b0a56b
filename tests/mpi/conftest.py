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


FAILED = []


def pytest_runtest_makereport(item, call):
    if call.excinfo is not None and call.when == "call" and not call.excinfo.errisinstance(pytest.skip.Exception):
        FAILED.append(item.name)


def in_step():
    """All ranks leave a test before one begins the next; but one that failed in it must not wait, it ends the run."""
    if not FAILED:
        MPI.COMM_WORLD.Barrier()


@pytest.fixture(scope="session")
def world():
    return World()


@pytest.fixture
def shared_folder(world):
    """One new folder for all ranks."""
    folder = world.comm.bcast(tempfile.mkdtemp(prefix="mgwfbp-test-") if world.rank == 0 else None)
    yield folder
    in_step()


@pytest.fixture(autouse=True)
def _in_step():
    yield
    in_step()


def first_ranks(world, count):
    """A World of the first `count` ranks; None on the others, which then just go on to the next collective."""
    comm = world.comm.Split(0 if world.rank < count else MPI.UNDEFINED, world.rank)
    return World(comm) if comm != MPI.COMM_NULL else None
