"""The cupy kernel set for the tests that need a GPU; each file skips as a whole where there is none."""

from __future__ import annotations

import pytest

from mgwfbp.kernels.gpu.cupy_set import CupySet
from mgwfbp.kernels.gpu.load import load


@pytest.fixture(scope="session", params=["cuDNN", "products"])
def gpu(request):
    """The cupy kernel set in fp32, once with cuDNN and once with matrix products for convolutions."""
    found = load()
    if request.param == "products":
        return CupySet(found.xp, found.launch)
    if found.note:
        pytest.skip(found.note)
    return found
