"""How a slice of the arena travels: transports, whose blocking calls the comm thread makes."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from mgwfbp.comm.mpi import MPI
from mgwfbp.comm.shards import bounds, chunks
from mgwfbp.comm.transports.registry import transport
from mgwfbp.errors import UserError
from mgwfbp.schedule import AffineCost, Cost
from mgwfbp.schedule.cost import halves

SHORTEST_POLL_S, LONGEST_POLL_S = 10e-6, 200e-6
FIRST_GUESS = AffineCost(50e-6, 0.5e-9)  # of a message between two ranks of one machine, until it is measured


class Transport(Protocol):
    """Each call returns when it is done. `array` is 1-D, contiguous, a view of the arena, of the array module `xp`.

    A rank's own parts of an array are those of comm/shards.py with `most` elements a message.
    """

    name: str
    most: int
    xp: Any
    reason: str

    def enter_thread(self) -> None:
        """The comm thread begins."""

    def mark(self) -> Any:
        """The main thread has written what it announces: what a message of it must wait for. A GPU may not be done."""

    def wait_for(self, mark: Any) -> None:
        """Return when everything before `mark` is written."""

    def all_reduce(self, array: Any) -> None:
        """`array` becomes its sum over all ranks."""

    def reduce_scatter(self, array: Any) -> None:
        """This rank's own parts of `array` become their sums over all ranks; the rest is left as it is."""

    def all_gather(self, array: Any) -> None:
        """Every rank's own parts of `array` come to all ranks."""

    def close(self) -> None:
        """Free the communicator. Collective; no message is on its way."""


class HostTransport:
    """NumPy arrays by MPI_Iallreduce, in place on the slice.

    MPI advances a non-blocking message only inside MPI calls, so somebody must call it: the comm thread tests, sleeping
    in between, because a blocking Wait would spin and take the core from the backward pass. How long it sleeps depends
    on what the message should take, `cost`: an eighth of it, at least 10 and at most 200 µs. A short message has a few
    steps, and each waits for a test; in a long one 200 µs are nothing (1 ms was worse than no overlap at all). When the
    message takes longer, because a rank is late, the pauses grow slowly, with the time that has passed.
    """

    name = "host"
    xp: Any = np
    reason = ""  # why it was chosen

    def __init__(self, comm: MPI.Intracomm, cost: Cost = FIRST_GUESS) -> None:
        self.comm, self.cost = comm, cost
        self.fixed_s, self.most = poll_interval_s(), most_elements()
        self._received: Any = np.empty(0, np.float32)

    def enter_thread(self) -> None:
        """Nothing is a thread's own on the host."""

    def mark(self) -> Any:
        """What the main thread wrote is written."""

    def wait_for(self, mark: Any) -> None:
        """There is nothing to wait for."""

    def all_reduce(self, array: Any) -> None:
        """Sum `array` over all ranks, in place; in parts if it has more elements than one message may have."""
        for chunk in chunks(slice(0, len(array)), self.most):
            part = array[chunk]
            self._wait(self.comm.Iallreduce(MPI.IN_PLACE, part, MPI.SUM), self.cost, part.nbytes)

    def reduce_scatter(self, array: Any) -> None:
        """Sum this rank's own parts over all ranks."""
        rank, cost = self.comm.Get_rank(), halves(self.cost)[0]
        for chunk in chunks(slice(0, len(array)), self.most):
            part = array[chunk]
            edges = bounds(len(part), self.comm.Get_size())
            if len(self._received) < edges[rank + 1] - edges[rank] or self._received.dtype != array.dtype:
                self._received = self._receive_into(edges[rank + 1] - edges[rank], array.dtype)
            own = self._received[: edges[rank + 1] - edges[rank]]  # MPI sends from and receives into different arrays
            counts = [after - before for before, after in pairwise(edges)]
            self._reduce_scatter(part, own, counts, cost)
            self._keep(part[edges[rank] : edges[rank + 1]], own)

    def all_gather(self, array: Any) -> None:
        """Spread every rank's own parts."""
        cost = halves(self.cost)[1]
        for chunk in chunks(slice(0, len(array)), self.most):
            part = array[chunk]
            edges = bounds(len(part), self.comm.Get_size())
            places = [after - before for before, after in pairwise(edges)], edges[:-1]
            self._all_gather(part, places, cost)

    def close(self) -> None:
        """Free the communicator. Collective; no message is on its way."""
        self.comm.Free()

    def _reduce_scatter(self, part: Any, own: Any, counts: list[int], cost: Cost) -> None:
        self._wait(self.comm.Ireduce_scatter(part, own, counts, MPI.SUM), cost, part.nbytes)

    def _all_gather(self, part: Any, places: tuple[list[int], list[int]], cost: Cost) -> None:
        self._wait(self.comm.Iallgatherv(MPI.IN_PLACE, [part, places]), cost, part.nbytes)

    def _keep(self, part: Any, received: Any) -> None:
        """Copy what was received to its place in the arena, and return when it is there."""
        part[...] = received

    def _receive_into(self, elements: int, dtype: Any) -> Any:
        return np.empty(elements, dtype)

    def _wait(self, request: MPI.Request, cost: Cost, nbytes: int) -> None:
        wait(request, float(cost(float(nbytes))) / 8, self.fixed_s)


def wait(request: MPI.Request, pause_s: float, fixed_s: float | None = None) -> None:
    """Return when `request` is done; sleeps `pause_s` between tests, longer if it takes long, or always `fixed_s`."""
    pause = min(max(pause_s, SHORTEST_POLL_S), LONGEST_POLL_S)
    start = time.perf_counter()
    while not request.Test():
        if fixed_s is not None:
            time.sleep(fixed_s)
        else:
            time.sleep(min(max(pause, (time.perf_counter() - start) / 32), LONGEST_POLL_S))


def most_elements() -> int:
    """The most elements of one message: MGWFBP_MAX_MESSAGE, else 2³¹ − 1, which is all that some MPIs can count."""
    text = os.environ.get("MGWFBP_MAX_MESSAGE", str(2**31 - 1))
    if not text.isdecimal() or not 1 <= int(text) < 2**31:
        raise UserError(f"MGWFBP_MAX_MESSAGE={text}: must be a whole number of elements from 1 to 2147483647")
    return int(text)


def poll_interval_s() -> float | None:
    """MGWFBP_POLL_US microseconds between two tests, in seconds; None if it is not set. UserError for no number."""
    text = os.environ.get("MGWFBP_POLL_US")
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise UserError(f"MGWFBP_POLL_US={text}: must be a number of microseconds from 0 to 1000000")
    return value * 1e-6


@transport("host")
def _host(comm: MPI.Intracomm, xp: Any, elements: int) -> HostTransport:
    return HostTransport(comm)
