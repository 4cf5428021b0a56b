"""No silent hang: says what a rank waits for when nothing goes on, and ends the job when nothing does for long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from mgwfbp.comm import Watch, World
from mgwfbp.data import Batch
from mgwfbp.train.loop import Hook, Trainer
from mgwfbp.train.times import Done


class Watchdog(Hook):
    """Expects something to be finished every `warn_s` seconds while a run lasts, and ends the job after `abort_s`.

    0 turns either off. What has no beats, as the start of a run, a measurement or a checkpoint, may take longer before
    the job ends, but is told after the same time.
    """

    def __init__(self, warn_s: float = 30.0, abort_s: float = 300.0) -> None:
        self.warn_s, self.abort_s = warn_s, abort_s
        self.watch: Watch | None = None  # while a run lasts

    @contextmanager
    def watching(self, world: World) -> Iterator[Watch]:
        """Watch this thread, through the start of a run, too: one that begins within is watched by this."""
        self.watch = Watch(world.rank, world.size, self.warn_s, self.abort_s)
        try:
            with self.watch, self.watch.patiently():
                yield self.watch
        finally:
            self.watch = None

    def open(self, trainer: Trainer) -> AbstractContextManager[Any]:
        """From here on each iteration is a beat."""
        self.trainer = trainer
        return self._running()

    @contextmanager
    def _running(self) -> Iterator[None]:
        with ExitStack() as stack:
            watch = self.watch or stack.enter_context(self.watching(self.trainer.world))
            before = watch.doing, watch.factor
            watch.doing, watch.factor = lambda: self.trainer.comm.doing, 1
            self.beat()
            try:
                yield
            finally:
                watch.doing, watch.factor = before

    def after(self, batch: Batch, done: Done) -> None:
        """An iteration is over."""
        self.beat()

    def beat(self) -> None:
        """Something was finished."""
        if self.watch is not None:
            self.watch.beat()

    def paused(self) -> AbstractContextManager[None]:
        """Around what takes as long as it takes: a checkpoint, a measurement."""
        return self.watch.patiently() if self.watch is not None else nullcontext()
