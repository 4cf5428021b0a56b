"""cuDNN on cards that are not there: it takes a card's properties as JSON, and then builds plans without a driver.

What it wants of the driver is a library of the name libcuda.so.1 with six functions, which are compiled here and only
return an error. Needs the wheels of cuDNN, CuPy and NVRTC: `make test-all` has an environment for them.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

STUB = """
#define S(n) int n(void *a, void *b, void *c, void *d, void *e, void *f) { return 3; }
int cuGetErrorString(int e, const char **s) { *s = "there is no card"; return 0; }
S(cuModuleGetFunction) S(cuModuleLoadData) S(cuModuleUnload) S(cuTensorMapEncodeIm2col) S(cuTensorMapEncodeTiled)
"""
# NVIDIA's published properties, by the names of cuDNN's JSON. What is not given is the same for all of them.
COMMON = {
    "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024, "oversizedSharedMemoryPerBlock": 0,
    "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxThreadsPerBlock": 1024,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "warpSize": 32, "isTccDriver": 0,
    "supportCoopLaunch": 1, "cudaDeviceId": 0, "deviceName": "stand-in", "smCountOrigin": 0, "driverVer": 13000,
    "schemaVersion": 1,
}  # fmt: skip
NAMES = (
    "deviceVer", "multiProcessorCount", "maxSharedMemoryPerBlockOptin", "maxCtasPerSM", "maxThreadsPerSM",
    "totalGlobalMem", "smClockRateKHz", "memClockRateKHz", "memoryBusWidth", "l2CacheSize", "pciDeviceId",
)  # fmt: skip
CARDS = {
    "H100": (900, 132, 232448, 32, 2048, 85029158912, 1980000, 2619000, 5120, 52428800, 0x2330),
    "A100": (800, 108, 166912, 32, 2048, 42405855232, 1410000, 1215000, 5120, 41943040, 0x20B0),
    "RTX 5090": (1200, 170, 101376, 24, 1536, 34190917632, 2407000, 14001000, 512, 100663296, 0x2B85),
    "T4": (750, 40, 65536, 16, 1024, 15828320256, 1590000, 5001000, 256, 4194304, 0x1EB8),
}


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The module `cudnn`, its library beside it, and a driver that only says no."""
    cudnn = pytest.importorskip("cudnn", reason="the wheels of cuDNN are not installed (make test-all installs them)")
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the stand-in of the driver")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "stub.c").write_text(STUB)
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", folder / "libcuda.so.1", "stub.c"]
    subprocess.run(command, cwd=folder, check=True)
    ctypes.CDLL(str(folder / "libcuda.so.1"), ctypes.RTLD_GLOBAL)  # found by its soname from here on
    try:
        cudnn.backend_version()
    except RuntimeError as error:
        pytest.skip(f"the library of cuDNN is not found: {error}")
    return cudnn


@pytest.fixture
def card(library, request, tmp_path, monkeypatch):
    """`cudnn` and `cupy` for the card request.param: plans can be built for it, and nothing can run."""
    properties = {**COMMON, **dict(zip(NAMES, CARDS[request.param], strict=True))}
    properties["cudnnVersion"] = library.backend_version()
    device, real = library.create_device_properties(json.dumps(properties)), library.pygraph

    def pygraph(handle, **options):
        assert handle == "handle"
        return real(device_property=device, **options)

    monkeypatch.setattr(library, "pygraph", pygraph)
    monkeypatch.setattr(library, "create_handle", lambda: "handle")
    capability = str(properties["deviceVer"] // 10)
    runtime = SimpleNamespace(getDeviceProperties=lambda index: {"name": request.param.encode()})
    cuda = SimpleNamespace(Device=lambda: SimpleNamespace(id=0, compute_capability=capability), runtime=runtime)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    return library
