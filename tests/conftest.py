from __future__ import annotations

import os

# The reference set, unless a test asks for the other: its compiled loops cost every process a second to load.
os.environ.setdefault("MGWFBP_KERNELS", "numpy")

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("default")


@pytest.fixture(scope="session", autouse=True)
def _one_blas_thread():
    """Ranks under test share the cores; and single-threaded sums are the same on every machine."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield


@pytest.fixture(params=["numpy", "fast"])
def kernels(request):
    """Both kernel sets, one after the other."""
    from mgwfbp.kernels import kernel_set

    found = kernel_set(request.param)
    if found.name != request.param:
        pytest.skip("the fast kernels cannot be loaded here")
    return found


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Both element types, one after the other."""
    return request.param
