"""Asked to stop: SIGTERM, SIGUSR1 or Ctrl-C ends a run after its iteration, with a checkpoint; a second one at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

from mgwfbp.data import Batch
from mgwfbp.errors import StoppedError
from mgwfbp.train.loop import Hook, Trainer
from mgwfbp.train.times import Done

EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: not done, start it again
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
EVERY_S = 0.5  # how often ranks ask each other, about
# Slurm signals the ranks, and the launcher that it signals as well passes it on: within this time it is one request.
ECHO_S = 1.0


class Stop(Hook):
    """A signal is remembered, and ends the run after its iteration: on all ranks, whichever was signalled."""

    def __init__(self) -> None:
        self.seen, self.seen_s = 0, 0.0

    def open(self, trainer: Trainer) -> AbstractContextManager[Any]:
        """Take the signals over, until the run is over."""
        self.trainer, self.seen = trainer, 0
        return self._listening()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        ours = SIGNALS if threading.current_thread() is threading.main_thread() else ()  # others cannot take any over
        before: dict[int, Any] = {number: signal.signal(number, self._note) for number in ours}
        try:
            yield
        finally:
            # If one was seen, its echo may find the process leaving; `_note` lets any later signal through.
            for number, handler in before.items() if not self.seen else ():
                signal.signal(number, handler)

    def due(self, batch: Batch) -> bool:
        """Every half second or so, by the time that the plan says: it is the same on all ranks."""
        plan = self.trainer.planner.plan
        return not (plan and plan.iteration_s and batch.number % max(1, round(EVERY_S / plan.iteration_s)))

    def after(self, batch: Batch, done: Done) -> None:
        """Ask all ranks whether one of them was signalled. Collective."""
        (number,) = self.trainer.world.max([self.seen])
        if number:
            hooks = list(self.trainer.hooks)
            saved = any(hook.saves for hook in hooks[hooks.index(self) :])
            self.trainer.stopping = StoppedError(
                f"{signal.Signals(int(number)).name}: stopped after iteration {batch.number + 1} of "
                f"{self.trainer.total}"
                + (", the checkpoint is written; go on with --resume" if saved else ", nothing was saved"),
                EXIT_CODE,
            )

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.seen:
            self.seen, self.seen_s = number, time.monotonic()
            if number == signal.SIGINT and self.trainer.world.rank == 0:
                os.write(
                    2, b"\nmgwfbp: stopping after this iteration; Ctrl-C again ends at once, without a checkpoint\n"
                )
        elif time.monotonic() - self.seen_s > ECHO_S:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            os.kill(os.getpid(), number)
