"""The cupy kernel set for the tests of a GPU. Where there is none it is the stand-in: so the tests are tested."""

from __future__ import annotations

import pytest

from mgwfbp.kernels.gpu.cupy_set import CupySet
from mgwfbp.kernels.gpu.load import load, why_not


@pytest.fixture(scope="session", params=["cuDNN", "products"])
def gpu(request):
    """The cupy kernel set in fp32, once with cuDNN and once with matrix products for convolutions."""
    if why_not():
        from tests.cuda_on_host import DEVICE
        from tests.test_cudnn import with_cudnn

        return DEVICE if request.param == "products" else with_cudnn()
    found = load()
    if request.param == "products":
        return CupySet(found.xp, found.launch)
    if found.note:
        pytest.fail(found.note)
    return found
