"""Which way serves which size: ours and the library's, measured when a run starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mgwfbp.comm.mpi import MPI
from mgwfbp.comm.sums.buffers import Buffers, Sums, Wait
from mgwfbp.comm.sums.direct import Direct
from mgwfbp.comm.sums.library import Library
from mgwfbp.errors import UserError, unknown_name
from mgwfbp.schedule.network import ALGORITHMS, WIRES

ENOUGH = 0.95  # of the time of the one before it: what a way must beat to be taken, so that noise does not choose


def check_way(algorithm: str, wire: str) -> None:
    """Raise UserError for an unknown name, and for what does not go together."""
    for kind, name, known in (("algorithm", algorithm, ALGORITHMS), ("wire", wire, WIRES)):
        if name not in known:
            raise unknown_name(kind, name, known)
    if algorithm == "mpi" and wire != "fp32":
        raise UserError(f"--wire {wire} is summed directly, as no MPI has 16-bit sums of use; not with --algorithm mpi")


def ways(comm: MPI.Intracomm, wait: Wait, algorithm: str = "auto", wire: str = "fp32") -> list[Sums]:
    """The ways that may be taken, the most usual first. Raises UserError as `check_way` does."""
    check_way(algorithm, wire)
    buffers = Buffers()
    found: list[Sums] = []
    if algorithm in ("auto", "mpi") and wire != "bf16":
        found.append(Library(comm, wait, buffers))
    if algorithm in ("auto", "direct") and wire != "bf16":
        found.append(Direct(comm, wait, buffers))
    if wire != "fp32":
        found.append(Direct(comm, wait, buffers, "bf16"))
    return found


def label(way: Sums) -> str:
    """What people call it: "mpi", "direct", "direct bf16"."""
    return way.name if way.wire == "fp32" else f"{way.name} {way.wire}"


def fastest(seconds: Sequence[Sequence[float]]) -> list[int]:
    """For each size the place of the way to take; `seconds[way][size]`, ∞ where it was not measured."""
    chosen = []
    for column in zip(*seconds, strict=True):
        best = 0
        for place, took in enumerate(column):
            if took < column[best] * ENOUGH:
                best = place
        chosen.append(best)
    return chosen


class Chosen:
    """Each operation by the way that is the fastest at the nearest of `sizes` (bytes, ascending).

    `all_reduces[i]`, `scatters[i]` and `gathers[i]` serve messages of about `sizes[i]` bytes.
    """

    name = "auto"

    def __init__(
        self, sizes: Sequence[int], all_reduces: Sequence[Sums], scatters: Sequence[Sums], gathers: Sequence[Sums]
    ) -> None:
        self.sizes, self.all_reduces, self.scatters, self.gathers = sizes, all_reduces, scatters, gathers
        self.wire = all_reduces[-1].wire

    def all_reduce(self, part: Any) -> None:
        """`part` becomes its sum over all ranks."""
        self.all_reduces[self._nearest(part.nbytes)].all_reduce(part)

    def reduce_scatter(self, part: Any) -> None:
        """This rank's own part of `part` becomes its sum over all ranks; the rest is left as it is."""
        self.scatters[self._nearest(part.nbytes)].reduce_scatter(part)

    def all_gather(self, part: Any) -> None:
        """Every rank's own part of `part` comes to all ranks, as it is."""
        self.gathers[self._nearest(part.nbytes)].all_gather(part)

    def _nearest(self, nbytes: int) -> int:
        """The place of the size nearest to `nbytes`, by their ratio."""
        return min(range(len(self.sizes)), key=lambda place: abs(math.log(self.sizes[place] / max(1, nbytes))))
