"""A GPU that is not there: our CUDA kernels compiled for the host, and arrays that behave like CuPy's.

The kernels' own source is compiled with g++; thread and block indices become variables that loops set. The arrays are
NumPy's, but like CuPy's they refuse host arrays in an operation, and unlike CuPy's they refuse to be read: what would
wait for the device inside of an iteration is an error here. So the kernel set and the layers run as they are.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from mgwfbp.kernels.gpu import sources
from mgwfbp.kernels.gpu.cupy_set import CupySet

SHIM = """
#include <cmath>
using namespace std;
#define __global__
#define __device__
struct Dimensions { unsigned x, y, z; };
static Dimensions threadIdx, blockIdx, blockDim, gridDim;
"""
# Threads may run in any order, so a test can ask for the last one first.
RUNNER = """
extern "C" void run_{name}(unsigned blocks_x, unsigned blocks_y, unsigned threads, int last_first, {declared}) {{
    gridDim = {{blocks_x, blocks_y, 1}};
    blockDim = {{threads, 1, 1}};
    for (unsigned by = 0; by < blocks_y; by++)
        for (unsigned bx = 0; bx < blocks_x; bx++)
            for (unsigned tx = 0; tx < threads; tx++) {{
                blockIdx.y = last_first ? blocks_y - 1 - by : by;
                blockIdx.x = last_first ? blocks_x - 1 - bx : bx;
                threadIdx.x = last_first ? threads - 1 - tx : tx;
                {name}({passed});
            }}
}}
"""
C_TYPES = {
    np.int32: ctypes.c_int,
    np.int64: ctypes.c_longlong,
    np.float32: ctypes.c_float,
    np.float64: ctypes.c_double,
    np.uintp: ctypes.c_void_p,
}
last_first = False  # a test sets it
reads: list[str] | None = None  # where the host may read arrays of the device, what it read
started = lambda what: None  # noqa: E731  is told of each kernel, operation and copy that is put into the current stream


def host_source() -> str:
    parts = [SHIM, *(sources.source(family) for family in sources.FAMILIES)]
    for name, kernel in sources.declarations().items():
        declared = ", ".join(f"{p.type} {'*' if p.pointer else ''}{p.name}" for p in kernel.parameters)
        parts.append(RUNNER.format(name=name, declared=declared, passed=", ".join(p.name for p in kernel.parameters)))
    return "\n".join(parts)


@cache
def library(dtype: str) -> ctypes.CDLL:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler (g++) to compile the CUDA kernels for the host")
    source = host_source()
    element = {"float32": "float", "float64": "double"}[dtype]
    command = [compiler, f"-DELEMENT={element}", "-std=c++17", "-O1", "-Wall", "-Werror", "-shared", "-fPIC"]
    # Compiled once for all processes of all tests: there are many, and each would need some seconds.
    name = hashlib.sha256(repr((command, source)).encode()).hexdigest()[:20]
    built = Path(tempfile.gettempdir(), f"mgwfbp-stand-in-{os.getuid()}", f"{name}.so")
    if not built.exists():
        built.parent.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            (code := Path(folder, "kernels.cpp")).write_text(source, "utf-8")
            done = subprocess.run([*command, str(code), "-o", f"{code}.so"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            os.replace(f"{code}.so", built)
    return ctypes.CDLL(str(built))


def run(kernel, dtype, blocks, threads, arguments):
    """Run a kernel's whole grid; `arguments` as `sources.checked` gives them."""
    started(f"kernel {kernel}")
    passed = [
        ctypes.c_void_p(value.ctypes.data) if isinstance(value, np.ndarray) else C_TYPES[type(value)](value.item())
        for value in arguments
    ]
    sizes = (ctypes.c_uint(size) for size in (*blocks, threads))
    getattr(library(np.dtype(dtype).name), f"run_{kernel}")(*sizes, ctypes.c_int(last_first), *passed)


def launch(kernel, dtype, width, *arguments, rows=1):
    """As gpu/launch.py's launch, with the same checks and the same grid, but it returns when the kernel has run."""
    assert all(isinstance(a, DeviceArray | int | float | np.generic | None) for a in arguments), (kernel, arguments)
    checked = sources.checked(kernel, dtype, arguments)
    run(kernel, dtype, sources.grid(width, rows), sources.THREADS, checked)


class DeviceArray(np.ndarray):
    """An array that only the device may read."""

    def _refuse(self, *_):
        raise AssertionError("an array of the device is read by the host")

    __index__ = __iter__ = item = tolist = _refuse

    def _read(self, kind):
        if reads is None:
            self._refuse()
        reads.append(kind.__name__)
        return kind(to_host(self))

    def __float__(self):
        return self._read(float)

    def __int__(self):
        return self._read(int)

    def __bool__(self):
        return self._read(bool)

    def get(self, stream=None, out=None, blocking=True):
        """CuPy's copy to the host: into `out` when `stream` gets there, or now."""
        if out is None:
            started("a copy to the host")
            return np.array(to_host(self))
        stream.put(lambda: np.copyto(out, to_host(self)))
        assert not blocking
        return out

    def set(self, array, stream):
        """CuPy's copy to the device, when `stream` gets there."""
        stream.put(lambda: np.copyto(to_host(self), array))

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        started(ufunc.__name__)
        if out is not None:
            options["out"] = tuple(to_host(array) for array in out)
        result = getattr(ufunc, method)(*(to_host(value) for value in inputs), **options)
        return out[0] if out is not None else to_device(result)

    def __array_function__(self, function, types, arguments, options):
        if function is np.asarray:  # with like=, which NumPy has taken out
            return xp.asarray(*arguments, **options)
        raise AssertionError(f"numpy.{function.__name__} of a device array; use the kernel set's xp")

    def __setitem__(self, key, value):
        started("an assignment")
        super().__setitem__(key, to_host(value))


def to_host(value):
    """The plain NumPy array behind a device array; what is no array stays. A host array is what CuPy refuses, too."""
    if isinstance(value, DeviceArray):
        return value.view(np.ndarray)
    if isinstance(value, list | tuple):
        return type(value)(to_host(part) for part in value)
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    return value


def to_device(value):
    """A device array of an array or NumPy scalar; what is neither stays."""
    return np.asarray(value).view(DeviceArray) if isinstance(value, np.ndarray | np.generic) else value


class DeviceModule:
    """NumPy's functions, for device arrays only; asarray and ascontiguousarray copy host arrays to the device."""

    def __getattr__(self, name):
        function = getattr(np, name)
        if isinstance(function, type) or not callable(function):
            return function

        def call(*arguments, **options):
            started(name)
            options = {key: to_host(value) for key, value in options.items()}
            out = options.get("out")
            result = function(*(to_host(value) for value in arguments), **options)
            return to_device(result) if out is None else None

        return call

    def broadcast_to(self, value, shape):
        """NumPy's result cannot be written to; CuPy's can, and then every place that shows the value changes."""
        view = np.broadcast_to(to_host(value), shape)
        return to_device(np.lib.stride_tricks.as_strided(to_host(value), shape, view.strides))

    def asarray(self, value, dtype=None):
        started("asarray")
        return value if _fits(value, dtype) else to_device(np.array(_readable(value), dtype))

    def ascontiguousarray(self, value, dtype=None):
        if _fits(value, dtype) and value.flags.c_contiguous:
            return value
        return to_device(np.array(_readable(value), dtype, order="C"))


def _fits(value, dtype):
    return isinstance(value, DeviceArray) and (dtype is None or value.dtype == dtype)


def _readable(value):
    return value.view(np.ndarray) if isinstance(value, DeviceArray) else value


xp = DeviceModule()
DEVICE = CupySet(xp, launch)
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


def random(dtype, *shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


compiled: list[str] = []  # the element types of the modules that were compiled before their first use


class RawModule:
    """CuPy's, as far as gpu/launch.py uses it: the functions of a source, which run on the host."""

    def __init__(self, code, options):
        assert code in {sources.source(family) for family in sources.FAMILIES}
        self.dtype = {"-DELEMENT=float": "float32", "-DELEMENT=double": "float64"}[options[0]]

    def compile(self):
        compiled.append(self.dtype)

    def get_function(self, kernel):
        return lambda blocks, threads, arguments: run(kernel, self.dtype, blocks, *threads, arguments)


class Cupy(DeviceModule):
    """A module to put in the place of CuPy, with a GPU."""

    RawModule = RawModule

    def is_available(self):
        return True
