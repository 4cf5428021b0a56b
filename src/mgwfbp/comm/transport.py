"""How a slice of gradients travels: transports, each with one blocking `all_reduce` for the comm thread to call."""

from __future__ import annotations

import os
import time
from typing import Any, Protocol

from mgwfbp.comm.world import MPI
from mgwfbp.errors import UserError

# A sleep this short takes about 60 µs on Linux (the timer's slack). It brought a 16 kB message between two ranks from
# 0.9 ms (with a first sleep of 20 µs) to 0.35 ms, and cost the compute thread no more.
FIRST_POLL_S = 1e-6


class Transport(Protocol):
    """Sums a slice over all ranks, in place, and returns when it is done."""

    name: str

    def all_reduce(self, array: Any) -> None:
        """`array` (1-D, contiguous, a view of the arena) becomes its sum over all ranks."""


class HostTransport:
    """NumPy arrays by MPI_Iallreduce, in place on the slice.

    MPI advances a non-blocking message only inside MPI calls, so somebody must call it: the comm thread tests, sleeping
    in between (1 µs at first, for short messages, then twice as long each time up to `poll_s` seconds), because a
    blocking Wait would spin and take the core from the backward pass. 200 µs measured within 7 % of the pipelined bound
    on MPICH; 1 ms was worse than no overlap at all.
    """

    name = "host"

    def __init__(self, comm: MPI.Intracomm, poll_s: float | None = None) -> None:
        self.comm = comm
        self.poll_s = poll_interval_s() if poll_s is None else poll_s
        self.most = most_elements()

    def all_reduce(self, array: Any) -> None:
        """Sum `array` over all ranks, in place; in parts if it has more elements than one message may have."""
        for start in range(0, len(array), self.most):
            part = array[start : start + self.most]
            wait(self.comm.Iallreduce(MPI.IN_PLACE, part, MPI.SUM), longest_s=self.poll_s)


def wait(request: MPI.Request, *, longest_s: float) -> None:
    """Return when `request` is done, testing it after 1 µs, then after twice as long each time up to `longest_s`."""
    pause = min(FIRST_POLL_S, longest_s)
    while not request.Test():
        time.sleep(pause)
        pause = min(2 * pause, longest_s)


def most_elements() -> int:
    """The most elements of one message: MGWFBP_MAX_MESSAGE, else 2³¹ − 1, which is all that some MPIs can count."""
    text = os.environ.get("MGWFBP_MAX_MESSAGE", str(2**31 - 1))
    if not text.isdecimal() or not 1 <= int(text) < 2**31:
        raise UserError(f"MGWFBP_MAX_MESSAGE={text}: must be a whole number of elements from 1 to 2147483647")
    return int(text)


def poll_interval_s() -> float:
    """The polling interval in seconds: MGWFBP_POLL_US microseconds, 200 by default. Raises UserError for no number."""
    text = os.environ.get("MGWFBP_POLL_US", "200")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise UserError(f"MGWFBP_POLL_US={text}: must be a number of microseconds from 0 to 1000000")
    return value * 1e-6
