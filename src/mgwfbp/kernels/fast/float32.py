"""What the compiled loops are for, and what they look like: float32 rows, as wide as the sizes allow."""

from __future__ import annotations

import os
import tempfile
from functools import wraps
from pathlib import Path
from typing import Any

import numba
import numpy as np

from mgwfbp.kernels.base import Kernels
from mgwfbp.kernels.types import Array, Method

BLOCK = 256  # rows that are summed in float32 before float64 takes over
WIDE = 256


def can_cache() -> bool:
    """Whether numba finds a place for what it compiles, which takes half a minute.

    Beside the package, or in the user's home; where neither can be written (an installation of root's, a batch job),
    in a folder of the user's own among the temporary files. That must be nobody else's: numba runs what lies in it.
    """
    if _finds_place():
        return True
    folder = Path(tempfile.gettempdir(), f"mgwfbp-numba-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        state = folder.lstat()
    except OSError:
        return False
    if folder.is_symlink() or state.st_uid != os.getuid() or state.st_mode & 0o077:
        return False
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    numba.config.reload_config()
    return _finds_place()


def _finds_place() -> bool:
    try:
        numba.njit(cache=True)(_finds_place)  # of this file, so in this folder; nothing is compiled before it is called
    except RuntimeError:
        return False
    return True


compiled: Any = numba.njit(cache=can_cache(), nogil=True, fastmath={"contract", "reassoc", "nsz"}, parallel=True)


def float32(method: Method) -> Method:
    """`method` overrides one of `Kernels` for float32 arrays that are not empty; for all others NumPy's is called."""
    plain = getattr(Kernels, method.__name__)

    @wraps(plain)
    def chosen(self: Kernels, *arguments: Any, **named: Any) -> Any:
        for value in arguments:
            if isinstance(value, np.ndarray) and not (value.dtype.char == "f" and value.size):
                return plain(self, *arguments, **named)
        return method(self, *arguments, **named)

    return chosen  # type: ignore[return-value]


def wide(x: Array) -> Array:
    """`x` as a contiguous (rows, r · channels) array: r pixels side by side, 256 elements if the sizes allow it."""
    channels = x.shape[-1]
    pixels, r = x.size // channels, 1
    while pixels % (2 * r) == 0 and 2 * r * channels <= WIDE:
        r *= 2
    return np.ascontiguousarray(x).reshape(-1, r * channels)


def tiled(like: Array, *vectors: Array) -> list[Array]:
    """Vectors of one value a channel, repeated to the row length of `like`, a `wide` array."""
    return [np.concatenate([vector] * (like.shape[1] // len(vector))) for vector in vectors]
