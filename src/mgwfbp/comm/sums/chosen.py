"""Which way serves which size: ours and the library's, measured when a run starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from mgwfbp.comm.mpi import MPI
from mgwfbp.comm.sums.buffers import Buffers, Sums, Wait
from mgwfbp.comm.sums.direct import Direct
from mgwfbp.comm.sums.library import Library
from mgwfbp.errors import unknown_name
from mgwfbp.schedule.network import ALGORITHMS, WIRES

ENOUGH = 0.95  # of the time of the one before it: what a way must beat to be taken, so that noise does not choose


def check_way(algorithm: str, wire: str) -> None:
    """Raise UserError for an unknown name."""
    for kind, name, known in (("algorithm", algorithm, ALGORITHMS), ("wire", wire, WIRES)):
        if name not in known:
            raise unknown_name(kind, name, known)


def ways(comm: MPI.Intracomm, wait: Wait, algorithm: str = "mpi", wire: str = "fp32") -> list[Sums]:
    """The ways that may be taken, the most usual first. Raises UserError for an unknown name.

    What travels as bfloat16 is summed directly, whatever the algorithm: no MPI has 16-bit sums of use.
    """
    check_way(algorithm, wire)
    buffers = Buffers()
    library, direct, halved = (make(comm, wait, buffers) for make in (Library, Direct, partial(Direct, wire="bf16")))
    if comm.Get_size() == 1:
        return [library]
    found: dict[tuple[str, str], list[Sums]] = {
        ("mpi", "fp32"): [library],
        ("direct", "fp32"): [direct],
        ("auto", "fp32"): [library, direct],
        ("mpi", "auto"): [library, halved],
        ("direct", "auto"): [direct, halved],
        ("auto", "auto"): [library, direct, halved],
    }
    return found.get((algorithm, wire), [halved])


def label(way: Sums) -> str:
    """What people call it: "mpi", "direct", "direct bf16"."""
    return way.name if way.wire == "fp32" else f"{way.name} {way.wire}"


def fastest(seconds: Sequence[Sequence[float]]) -> list[int]:
    """For each size the place of the way to take; `seconds[way][size]`, ∞ where it was not measured."""
    return [clearly_best(column, ENOUGH) for column in zip(*seconds, strict=True)]


def clearly_best(seconds: Sequence[float], enough: float) -> int:
    """The place of the one to take: the first, unless a later one takes less than `enough` of the time of the best."""
    best = 0
    for place, took in enumerate(seconds):
        if took < seconds[best] * enough:
            best = place
    return best


class Served(NamedTuple):
    """The three operations for messages of one size."""

    all_reduce: Callable[[Any], None]
    reduce_scatter: Callable[[Any], None]
    all_gather: Callable[[Any], None]


class Chosen:
    """Each operation by the way that is the fastest at the nearest of `sizes` (bytes, ascending).

    `all_reduces[i]`, `scatters[i]` and `gathers[i]` serve messages of about `sizes[i]` bytes, with all their pieces.
    """

    def __init__(
        self, sizes: Sequence[int], all_reduces: Sequence[Sums], scatters: Sequence[Sums], gathers: Sequence[Sums]
    ) -> None:
        self.sizes = sizes
        self.served = [
            Served(one.all_reduce, two.reduce_scatter, three.all_gather)
            for one, two, three in zip(all_reduces, scatters, gathers, strict=True)
        ]

    def at(self, nbytes: int) -> Served:
        """What serves a message of `nbytes`: that of the nearest size, by their ratio."""
        distances = [abs(math.log(size / max(1, nbytes))) for size in self.sizes]
        return self.served[distances.index(min(distances))]


def serving(sums: Sums | Chosen, nbytes: int) -> Sums | Served:
    """What sums a message of `nbytes`."""
    return sums.at(nbytes) if isinstance(sums, Chosen) else sums
