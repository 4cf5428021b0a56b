"""Which transport fits which arrays and MPI, and why."""

from __future__ import annotations

import numpy as np
import pytest

from mgwfbp.comm import cuda_support, transport_names
from mgwfbp.comm.transports.choose import choose, choose_transport
from mgwfbp.errors import UserError


@pytest.mark.parametrize(
    ("wanted", "on_device", "vendor", "cuda", "name", "says"),
    [
        ("auto", False, "MPICH", None, "host", "NumPy"),
        ("host", False, "Open MPI", True, "host", "NumPy"),
        ("auto", True, "MPICH", True, "device", "says that it takes device memory"),
        ("auto", True, "Cray MPICH", True, "device", "says that it takes device memory"),
        ("auto", True, "Open MPI", True, "staged", "would copy through the host, too"),
        ("auto", True, "MVAPICH2", True, "staged", "is not known; try device-blocking"),
        ("device-blocking", True, "Open MPI", True, "device-blocking", "asked for"),
        ("auto", True, "MVAPICH", False, "staged", "without CUDA"),
        ("auto", True, "Microsoft MPI", None, "staged", "does not say"),
        ("staged", True, "MPICH", True, "staged", "asked for"),
        ("device", True, "MPICH", None, "device", "asked for"),
    ],
)
def test_the_choice_and_its_reason(wanted, on_device, vendor, cuda, name, says):
    choice = choose(wanted, on_device, vendor, cuda)
    assert choice.name == name
    assert says in choice.reason


@pytest.mark.parametrize(
    ("wanted", "on_device", "says"),
    [
        ("device", False, "is for gradients on a GPU"),
        ("host", True, "is for NumPy arrays"),
        ("stage", True, "did you mean 'staged'"),
    ],
)
def test_what_cannot_be(wanted, on_device, says):
    with pytest.raises(UserError, match=says):
        choose(wanted, on_device, "MPICH", True)


def test_the_names_are_those_of_the_registry():
    assert transport_names() == ["auto", "host", "staged", "device", "device-blocking"]


def test_the_mpi_that_is_loaded_answers():
    """The wheels of MPICH and Open MPI can be asked, and take no device memory."""
    assert cuda_support() in (False, None)
    assert choose_transport("auto", np).name == "host"
