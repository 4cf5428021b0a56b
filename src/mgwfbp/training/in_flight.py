"""What is still on its way when the next iteration's forward begins, and what each layer waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mgwfbp.arena import Arena
from mgwfbp.comm import Comm, Sent, World
from mgwfbp.errors import SharedError
from mgwfbp.schedule import Schedule
from mgwfbp.schedule.workload import SHARDED
from mgwfbp.training.optimizer import SGD


class InFlight:
    """The buckets that an iteration left behind.

    Of a pipelined schedule they hold sums, and are updated when they are taken, with the learning rate of their own
    iteration; of a sharded one they hold the updated parameters of all ranks. They arrive in one order, so whoever
    waits for one takes all before it, too. `waits`, `updates` and `sent` are what happened since `begin_iteration`;
    `finite` becomes False for good when a sum is not.
    """

    def __init__(self, comm: Comm, arena: Arena, optimizer: SGD) -> None:
        self.comm, self.arena, self.optimizer, self.now = comm, arena, optimizer, optimizer.kernels.now
        self.finite, self.sharded, self.lr = True, False, 0.0
        self._coming: Iterator[Sent] = iter(())
        self._missing: set[int] = set()  # layers whose bucket has not been taken
        self.begin_iteration()

    def begin_iteration(self) -> None:
        """Forget what was recorded."""
        self.waits: list[tuple[Any, Any]] = []  # marks of the kernel set's `now`
        self.updates: list[tuple[Any, Any]] = []
        self.sent: list[Sent] = []

    def leave(self, schedule: Schedule) -> None:
        """All gradients of an iteration under `schedule` are announced; of a sharded one, updated."""
        self.sharded, self.lr = schedule.mode == SHARDED, self.optimizer.lr
        self._coming = self.comm.gathered() if self.sharded else self.comm.completed()
        self._missing = set(range(len(self.arena.names)))

    def before_layer(self, layer: int) -> None:
        """Return when the parameters of `layer` (gradient-ready order) may be read."""
        while layer in self._missing:
            self._take()

    def check(self, world: World, iteration: int) -> None:
        """Raise SharedError, on all ranks, if a sum was not finite. Collective where ranks see their own parts only."""
        bad = world.sum([float(not self.finite)]) != [0.0] if self.sharded else not self.finite
        if bad:
            raise SharedError(
                f"iteration {iteration}, or one since the last line of the log: a sum of gradients is not finite: "
                "training has diverged, or its data is bad; try a smaller --lr; --schedule optimal names the layer"
            )

    def drain(self) -> None:
        """Return when nothing is on its way."""
        while self._missing:
            self._take()
        self.finite = self.optimizer.finite_so_far() and self.finite

    def _take(self) -> None:
        began = self.now()
        sent = next(self._coming, None)
        if sent is None:  # one rank: nothing is gathered
            self._missing.clear()
            return
        arrived = self.now()
        if not self.sharded:
            self.finite = self.finite and self.optimizer.finite([sent.slice])
            if self.finite:
                now, self.optimizer.lr = self.optimizer.lr, self.lr
                self.optimizer.update(sent.slice)
                self.optimizer.lr = now
        self.waits.append((began, arrived))
        self.updates.append((arrived, self.now()))
        self.sent.append(sent)
        self._missing -= set(range(sent.bucket.first, sent.bucket.last + 1))
