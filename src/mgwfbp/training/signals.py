"""Asked to stop: SIGTERM or SIGUSR1 ends the run after its iteration, with a checkpoint; a later second one at once."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType, TracebackType
from typing import Any

from mgwfbp.comm import World

EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: not done, start it again
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
EVERY_S = 0.5  # how often ranks ask each other, about
# Slurm signals the ranks, and the launcher that it signals as well passes it on: within this time it is one request.
ECHO_S = 1.0


class Stop:
    """Within it a signal is remembered: `asked` tells all ranks whether one of them was signalled."""

    def __init__(self, world: World) -> None:
        self.world, self.seen, self.seen_s = world, 0, 0.0

    def __enter__(self) -> Stop:
        self.before: dict[int, Any] = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.seen:
            return  # the echo may find the process leaving; `_note` lets any later signal through
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.seen:
            self.seen, self.seen_s = number, time.monotonic()
        elif time.monotonic() - self.seen_s > ECHO_S:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def asked(self, iteration: int, iteration_s: float | None) -> str | None:
        """The name of a signal that some rank got, the same on all ranks; None if none did.

        Collective, but only every half second or so: `iteration_s`, the same on all ranks, is how long one takes.
        """
        if iteration_s and iteration % max(1, round(EVERY_S / iteration_s)):
            return None
        (number,) = self.world.max([self.seen])
        return signal.Signals(int(number)).name if number else None
