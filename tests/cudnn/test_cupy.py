"""What we ask of CuPy, asked of CuPy itself, as far as it goes without a card: our kernels compile, our calls exist."""

from __future__ import annotations

import numpy as np
import pytest

from mgwfbp.kernels.gpu import sources
from mgwfbp.kernels.gpu.load import CUDA_13, FIRST_OF_13

cupy = pytest.importorskip("cupy", reason="the wheel of CuPy is not installed (make test-all installs it)")

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120, 121)


@pytest.mark.parametrize("element", ["float", "double"])
@pytest.mark.parametrize("family", sources.FAMILIES)
def test_every_kernel_compiles_as_cupy_compiles_it(family, element):
    from cupy_backends.cuda.libs import nvrtc

    for architecture in ARCHITECTURES:
        program = nvrtc.createProgram(sources.source(family), f"{family}.cu", (), ())
        # CuPy adds the last two to a RawModule's options.
        options = (f"-DELEMENT={element}", "--std=c++17", "-ftz=true", f"-arch=sm_{architecture}")
        try:
            nvrtc.compileProgram(program, options)
            assert len(nvrtc.getCUBIN(program)) > 1000
        except nvrtc.NVRTCError:
            pytest.fail(f"sm_{architecture}: {nvrtc.getProgramLog(program)}")
        finally:
            nvrtc.destroyProgram(program)


def test_the_oldest_card_of_cuda_13_is_the_one_that_we_take():
    from cupy_backends.cuda.libs import nvrtc

    if nvrtc.getVersion()[0] != CUDA_13 // 1000:
        pytest.skip("this is the compiler of another CUDA")
    oldest = min(architecture for architecture in nvrtc.getSupportedArchs())
    assert oldest == FIRST_OF_13


def on_no_card():
    """A CuPy array at an address that nobody may read."""
    memory = cupy.cuda.UnownedMemory(1 << 40, 1 << 20, None, 0)
    return cupy.ndarray((2, 3), cupy.float32, cupy.cuda.MemoryPointer(memory, 0))


# A call that does not exist, or not with these arguments, is an AttributeError or a TypeError.
CALLS = {
    "an event of the timeline": lambda cuda: cuda.Event(block=True),
    "a mark": lambda cuda: cuda.Event(block=True, disable_timing=True),
    "pinned memory": lambda cuda: cuda.PinnedMemoryPointer(cuda.PinnedMemory(100), 0),
    "a device's place": lambda cuda: cuda.runtime.deviceGetPCIBusId(0),
    "a device's properties": lambda cuda: cuda.runtime.getDeviceProperties(0)["uuid"],
    "a device's capability": lambda cuda: int(cuda.Device().compute_capability),
    "a card's mode": lambda cuda: cuda.runtime.deviceGetAttribute(20, 0),
    "an array beside another": lambda cuda: np.asarray(np.ones(3), like=on_no_card()),
    "a copy from pinned memory": lambda cuda: on_no_card()[0].set(np.ones(3, np.float32), stream=cuda.Stream.null),
    "a copy to pinned memory": lambda cuda: on_no_card()[0].get(
        stream=cuda.Stream.null, out=np.ones(3, np.float32), blocking=False
    ),
    "compiling": lambda cuda: cupy.RawModule(code=sources.source("lrn"), options=("-DELEMENT=float",)).compile(),
}


@pytest.mark.skipif(cupy.is_available(), reason="there is a card: tests/gpu runs all this")
@pytest.mark.parametrize("name", CALLS)
def test_every_call_gets_as_far_as_the_missing_card(name):
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="cuda"):
        CALLS[name](cupy.cuda)


def test_what_needs_no_card():
    assert cupy.cuda.runtime.runtimeGetVersion() >= 12000
    assert cupy.cuda.runtime.driverGetVersion() >= 0
    assert "non_blocking (bool)" in cupy.cuda.Stream.__doc__
