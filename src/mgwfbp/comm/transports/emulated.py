"""The `emulated` transport: a real all-reduce among the ranks present that takes as long as a given cost says."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mgwfbp.comm.mpi import MPI
from mgwfbp.comm.sleep import sleep_until
from mgwfbp.comm.transports.host import Transport, wait
from mgwfbp.comm.world import World
from mgwfbp.schedule import Cost
from mgwfbp.schedule.cost import halves


class EmulatedTransport:
    """Wraps `inner`: each message ends `cost(nbytes)` seconds after the last rank began it.

    The sums are those of the ranks present; the cost is that of the cluster that is played. On one machine all ranks
    have one clock and tell each other when they began; across machines each counts from its own beginning. The wait
    sleeps, so the compute thread keeps its core. `late` counts messages whose real all-reduce took longer than the
    cost: if there are many, the cost cannot be emulated here.
    """

    def __init__(self, inner: Transport, cost: Cost, world: World, comm: MPI.Intracomm) -> None:
        self.inner, self.cost, self.comm = inner, cost, comm
        self.name, self.most, self.xp = f"emulated over {inner.name}", inner.most, inner.xp
        self.reason = inner.reason
        self.enter_thread, self.mark, self.wait_for = inner.enter_thread, inner.mark, inner.wait_for
        self.close = inner.close
        self.one_clock = world.local_size == world.size
        self.late = 0
        self._began = np.zeros(1, np.int64)

    def all_reduce(self, array: Any) -> None:
        """Sum `array` over all ranks, in place, and end when the cost says."""
        self._take(self.inner.all_reduce, array, self.cost)

    def reduce_scatter(self, array: Any) -> None:
        """The same with the first half of an all-reduce."""
        self._take(self.inner.reduce_scatter, array, halves(self.cost)[0])

    def all_gather(self, array: Any) -> None:
        """The same with the second half."""
        self._take(self.inner.all_gather, array, halves(self.cost)[1])

    def _take(self, call: Callable[[Any], None], array: Any, cost: Cost) -> None:
        self._began[0] = time.perf_counter_ns()
        call(array)
        if self.one_clock:
            wait(self.comm.Iallreduce(MPI.IN_PLACE, self._began, MPI.MAX), 20e-6)
        deadline = int(self._began[0]) + round(float(cost(float(array.nbytes))) * 1e9)
        self.late += time.perf_counter_ns() > deadline
        sleep_until(deadline)
