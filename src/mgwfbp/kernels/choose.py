"""Which kernel set? The one that was asked for, or the fastest that works here; and how many threads it may use."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

from threadpoolctl import threadpool_limits

from mgwfbp.errors import unknown_name
from mgwfbp.kernels.base import Kernels

COMPILING_S = 5.0  # loading what is compiled takes less than a second, or two on a busy machine


def kernel_set(name: str | None = None, *, quiet: bool = False, math: str = "fp32") -> Kernels:
    """The kernel set called `name`: numpy, fast or cupy.

    By default it is what MGWFBP_KERNELS names, else cupy where it is installed and finds a GPU, else fast where it is
    installed, else numpy. `math` is cupy's: "fp32", or "tf32" for tensor cores. Where CuPy is installed and finds no
    GPU, and where a fast set that was asked for or is installed cannot be loaded, one line on stderr says which set
    stands in and why (not with `quiet`). Raises UserError for an unknown name, and for cupy without a GPU.

    The fast set loads OpenMP, which must not bind this process's threads to cores: it would choose the same ones in
    every rank of a machine. Variables that ask for it are overruled, and one line says so.
    """
    wanted = name or os.environ.get("MGWFBP_KERNELS") or None
    if wanted not in (None, "numpy", "fast", "cupy"):
        raise unknown_name("kernel set", wanted, ["cupy", "fast", "numpy"])
    say = (lambda text: None) if quiet else _say_once
    if wanted == "cupy" or (wanted is None and _has_gpu(say)):
        from mgwfbp.kernels.gpu.load import load

        found = load(math, say)
        if found.note:
            say(f"mgwfbp: {found.note}")
        return found
    if wanted == "numpy" or (wanted is None and find_spec("numba") is None):
        return _numpy()
    if bound := openmp_binding():
        say(f"mgwfbp: {bound} is not followed: OpenMP would bind all ranks of a machine to the same cores")
    with _announced(say):
        reason = why_not_fast()
    if reason is None:
        from mgwfbp.kernels.fast import fast

        return fast.load()
    say(f"mgwfbp: the fast kernels cannot be loaded ({reason}); using NumPy's")
    return _numpy()


@contextmanager
def _announced(say: Callable[[str], None]) -> Iterator[None]:
    """Around the loading of the fast set, which compiles it where it is used for the first time: that is said."""
    text = "mgwfbp: compiling the fast kernels, once: it takes half a minute or a whole one"
    timer = threading.Timer(COMPILING_S, say, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@cache
def why_not_fast() -> str | None:
    """Why the fast set cannot be used, with what to do; None if it can: then it is loaded, and OpenMP binds nothing."""
    if find_spec("numba") is None:
        return "numba is not installed, pip install 'mgwfbp[fast]'"
    if openmp_binding():
        os.environ["OMP_PROC_BIND"] = "false"  # goes before all others; read once, when the library is loaded
    try:
        from mgwfbp.kernels.fast import fast

        fast.load()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        return " ".join(str(error).split())
    return None


def openmp_binding(environment: Mapping[str, str] = os.environ) -> str | None:
    """The variable, and its value, by which OpenMP is told to bind threads to cores; None if it is not.

    Binding begins with the thread that loads the library, and each thread that this one starts later inherits its core.
    """
    if environment.get("OMP_PROC_BIND", "").strip().lower() == "false":
        return None
    names = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")
    return next((f"{name}={environment[name]}" for name in names if environment.get(name)), None)


@cache
def _numpy() -> Kernels:
    return Kernels()


def _has_gpu(say: Callable[[str], None]) -> bool:
    """Whether the cupy set can be used; says why not where CuPy is installed. Imports CuPy only if it is."""
    if find_spec("cupy") is None:
        return False
    from mgwfbp.kernels.gpu.load import why_not

    reason = why_not()
    if reason:
        say(f"mgwfbp: {reason}; using the CPU")
    return reason is None


@cache
def _say_once(text: str) -> None:
    sys.stderr.write(text + "\n")


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let BLAS, OpenMP and numba use `count` threads for as long as this lasts; load the kernel set before."""
    numba = sys.modules.get("numba")
    with threadpool_limits(count):
        if numba is not None:
            before = numba.get_num_threads()
            numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
        try:
            yield
        finally:
            if numba is not None:
                numba.set_num_threads(before)
