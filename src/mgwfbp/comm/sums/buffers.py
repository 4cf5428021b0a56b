"""What all ways of summing share: memory between messages, and what they are given to wait with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from mgwfbp.comm.mpi import MPI

# (request, bytes of the message that it is a step of, how many such steps the message has): returns when it has ended
Wait = Callable[[MPI.Request, float, int], None]


class Sums(Protocol):
    """A way to sum NumPy arrays over all ranks, who call it alike. `part` is a float32 array, contiguous, 1-D.

    A rank's own part of it is that of comm/shards.py. `wire` says what travels: "fp32", or "bf16", half of that.
    """

    name: str
    wire: str

    def all_reduce(self, part: Any) -> None:
        """`part` becomes its sum over all ranks."""

    def reduce_scatter(self, part: Any) -> None:
        """This rank's own part of `part` becomes its sum over all ranks; the rest is left as it is."""

    def all_gather(self, part: Any) -> None:
        """Every rank's own part of `part` comes to all ranks, as it is."""


class Buffers:
    """Memory that is kept between messages, by name, as long as the longest of them needs."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, Any], Any] = {}

    def get(self, name: str, elements: int, dtype: Any) -> Any:
        """`elements` of `dtype`, with any content; the same memory for each message."""
        key = name, np.dtype(dtype)
        if key not in self._kept or len(self._kept[key]) < elements:
            self._kept[key] = self.empty(elements, dtype)
        return self._kept[key][:elements]

    def empty(self, elements: int, dtype: Any) -> Any:
        """New memory."""
        return np.empty(elements, dtype)

    def copy(self, source: Any, target: Any) -> None:
        """Copy, and return when it is done."""
        target[...] = source
