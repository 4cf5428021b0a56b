"""How a slice of the arena travels: transports, whose blocking calls the comm thread makes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from mgwfbp.comm.mpi import MPI
from mgwfbp.comm.shards import chunks
from mgwfbp.comm.sums.buffers import Sums
from mgwfbp.comm.sums.chosen import Chosen, serving, ways
from mgwfbp.comm.transports.registry import transport
from mgwfbp.errors import UserError
from mgwfbp.schedule import AffineCost, Cost

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
    """NumPy arrays, in the way that `sums` sums them (comm/sums/): the MPI library's, or one of the `ways` of ours.

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
        self.ways: list[Sums] = self._ways()
        self.sums: Sums | Chosen = self.ways[0]

    def _ways(self, algorithm: str = "mpi", wire: str = "fp32") -> list[Sums]:
        return ways(self.comm, self._wait, algorithm, wire)

    def take(self, algorithm: str, wire: str) -> None:
        """Sum by these (comm/sums/chosen.py): the first one of several, until they were measured. UserError if none."""
        self.ways = self._ways(algorithm, wire)
        self.sums = self.ways[0]

    def enter_thread(self) -> None:
        """Nothing is a thread's own on the host."""

    def mark(self) -> Any:
        """What the main thread wrote is written."""

    def wait_for(self, mark: Any) -> None:
        """There is nothing to wait for."""

    def all_reduce(self, array: Any) -> None:
        """Sum `array` over all ranks, in place; in pieces if it has more elements than one message may have."""
        self._in_pieces(array, serving(self.sums, array.nbytes).all_reduce)

    def reduce_scatter(self, array: Any) -> None:
        """Sum this rank's own parts over all ranks."""
        self._in_pieces(array, serving(self.sums, array.nbytes).reduce_scatter)

    def all_gather(self, array: Any) -> None:
        """Spread every rank's own parts."""
        self._in_pieces(array, serving(self.sums, array.nbytes).all_gather)

    def _in_pieces(self, array: Any, send: Callable[[Any], None]) -> None:
        for chunk in chunks(slice(0, len(array)), self.most):
            send(array[chunk])

    def close(self) -> None:
        """Free the communicator. Collective; no message is on its way."""
        self.comm.Free()

    def _wait(self, request: MPI.Request, nbytes: float, steps: int) -> None:
        """Return when `request` has ended, one of the `steps` of a message of `nbytes`."""
        wait(request, float(self.cost(nbytes)) / (8 * steps), self.fixed_s)


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
