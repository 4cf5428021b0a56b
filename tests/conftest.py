from __future__ import annotations

import os

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
