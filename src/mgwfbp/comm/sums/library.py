"""The MPI library's own sums: MPI_Iallreduce, MPI_Ireduce_scatter, MPI_Iallgatherv."""

from __future__ import annotations

from typing import Any

from mgwfbp.comm.mpi import MPI
from mgwfbp.comm.shards import part_of, places
from mgwfbp.comm.sums.buffers import Buffers, Wait

OPEN_MPI_FROM = 4  # ranks: with fewer its two ways are the same


def slow_in_place(vendor: str, ranks: int) -> bool:
    """Whether the library sums better from one array into another than in place.

    Open MPI's non-blocking all-reduce takes a binomial reduce and a broadcast of the whole vector for all that is in
    place: log₂(n) times the bytes. From another array it takes Rabenseifner's way, from four ranks on.
    """
    return vendor == "Open MPI" and ranks >= OPEN_MPI_FROM


class Library:
    """Sums by the MPI library between the ranks of `comm`. `wait` returns when a request has ended."""

    name, wire = "mpi", "fp32"

    def __init__(self, comm: MPI.Intracomm, wait: Wait, buffers: Buffers) -> None:
        self.comm, self.wait, self.buffers = comm, wait, buffers
        self.in_place = not slow_in_place(MPI.get_vendor()[0], comm.Get_size())

    def all_reduce(self, part: Any) -> None:
        """`part` becomes its sum over all ranks."""
        sent: Any = MPI.IN_PLACE
        if not self.in_place:
            sent = self.buffers.get("sent", len(part), part.dtype)
            self.buffers.copy(part, sent)
        self._all_reduce(sent, part)

    def reduce_scatter(self, part: Any) -> None:
        """This rank's own part of `part` becomes its sum over all ranks; the rest is left as it is."""
        size = self.comm.Get_size()
        mine, (counts, _) = part[part_of(len(part), self.comm.Get_rank(), size)], places(len(part), size)
        received = self.buffers.get("received", len(mine), part.dtype)  # MPI sends from and receives into others
        self._scatter(part, received, counts)
        self.buffers.copy(received, mine)

    def all_gather(self, part: Any) -> None:
        """Every rank's own part of `part` comes to all ranks."""
        self._gather(part, places(len(part), self.comm.Get_size()))

    def _all_reduce(self, sent: Any, part: Any) -> None:
        self.wait(self.comm.Iallreduce(sent, part, MPI.SUM), part.nbytes, 1)

    def _scatter(self, part: Any, received: Any, counts: list[int]) -> None:
        self.wait(self.comm.Ireduce_scatter(part, received, counts, MPI.SUM), part.nbytes, 2)

    def _gather(self, part: Any, parts: tuple[list[int], list[int]]) -> None:
        self.wait(self.comm.Iallgatherv(MPI.IN_PLACE, [part, parts]), part.nbytes, 2)
