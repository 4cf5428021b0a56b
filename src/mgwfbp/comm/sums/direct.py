"""A sum of our own: every rank gets its part from all others, adds it up in the order of the ranks, and gives it back.

As many bytes as a ring sends, 2(n − 1)/n of the message, in two steps instead of 2(n − 1). The order of the additions
depends on nothing but the ranks, so an element's sum has the same bits in any bucket, under any schedule, in any run.

With bfloat16 on the wire it is half the bytes: the parts are rounded once, added in float32, and the sum is rounded
once. Its owner takes the rounded values as well, its own part and the sum, or replicas would drift apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgwfbp.comm.mpi import MPI
from mgwfbp.comm.shards import part_of, places
from mgwfbp.comm.sums.bf16 import to_bits, to_values
from mgwfbp.comm.sums.buffers import Buffers, Wait


class Direct:
    """Direct sums between the ranks of `comm`. `wait` returns when a request has ended; `wire` is "fp32" or "bf16"."""

    name = "direct"

    def __init__(self, comm: MPI.Intracomm, wait: Wait, buffers: Buffers, wire: str = "fp32") -> None:
        self.comm, self.wait, self.buffers, self.wire = comm, wait, buffers, wire
        self.rank, self.size = comm.Get_rank(), comm.Get_size()

    def all_reduce(self, part: Any) -> None:
        """`part` becomes its sum over all ranks."""
        if self.wire == "fp32":
            self._scatter(part)
            self.all_gather(part)
            return
        bits = self._scatter_bits(part)
        self.wait(self.comm.Iallgatherv(MPI.IN_PLACE, [bits, places(len(part), self.size)]), part.nbytes, 2)
        to_values(bits, part)

    def reduce_scatter(self, part: Any) -> None:
        """This rank's own part of `part` becomes its sum over all ranks; the rest is left as it is."""
        if self.wire == "fp32":
            self._scatter(part)
            return
        own, bits = part_of(len(part), self.rank, self.size), self._scatter_bits(part)
        to_values(bits[own], part[own])

    def all_gather(self, part: Any) -> None:
        """Every rank's own part of `part` comes to all ranks, as it is."""
        self.wait(self.comm.Iallgatherv(MPI.IN_PLACE, [part, places(len(part), self.size)]), part.nbytes, 2)

    def _scatter(self, part: Any) -> None:
        """Sum this rank's own part of `part` in float32."""
        mine = part[part_of(len(part), self.rank, self.size)]
        first, second, *others = self._received(part, part.nbytes)
        np.add(first, second, out=mine)
        for other in others:
            mine += other

    def _scatter_bits(self, part: Any) -> Any:
        """An array of bfloat16's bits as long as `part`, in which this rank's own part holds its sum."""
        sent = self.buffers.get("sent", len(part), np.uint16)
        to_bits(part, sent)
        own = part_of(len(part), self.rank, self.size)
        total, other = (self.buffers.get(name, own.stop - own.start, np.float32) for name in ("total", "other"))
        first, *others = self._received(sent, part.nbytes)
        to_values(first, total)
        for bits in others:
            to_values(bits, other)
            total += other
        to_bits(total, sent[own])
        return sent

    def _received(self, sent: Any, nbytes: float) -> Any:
        """All ranks' versions of this rank's own part, in their order."""
        own = part_of(len(sent), self.rank, self.size)
        count = own.stop - own.start
        received = self.buffers.get("received", count * self.size, sent.dtype)
        into = [count] * self.size, [count * rank for rank in range(self.size)]
        self.wait(self.comm.Ialltoallv([sent, places(len(sent), self.size)], [received, into]), nbytes, 2)
        return received.reshape(self.size, count)
