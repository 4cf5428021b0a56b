"""No silent hang: says what a rank waits for when nothing goes on, and ends the job when nothing does for long."""

from __future__ import annotations

import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from mgwfbp.comm.world import end_job


class Watchdog:
    """A thread that expects a `beat` every `warn_s` seconds while the context lasts, and ends the job after `abort_s`.

    `doing()` says what the comm thread is doing. 0 turns either off.
    """

    def __init__(self, rank: int, warn_s: float, abort_s: float, doing: Callable[[], str]) -> None:
        self.rank, self.warn_s, self.abort_s, self.doing = rank, warn_s, abort_s, doing
        self.main = threading.get_ident()
        self.last, self._paused = time.monotonic(), False
        self.done = threading.Event()

    def __enter__(self) -> Watchdog:
        waits = [seconds for seconds in (self.warn_s, self.abort_s) if seconds > 0]
        if waits:
            threading.Thread(target=self._run, args=(min(waits),), name="watchdog", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.done.set()

    def beat(self) -> None:
        """Something was finished."""
        self.last = time.monotonic()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Around what takes as long as it takes: a checkpoint, a measurement."""
        self._paused = True
        try:
            yield
        finally:
            self.beat()
            self._paused = False

    def _run(self, shortest: float) -> None:
        warned = 0.0
        while not self.done.wait(min(1.0, shortest / 4)):
            silent = 0.0 if self._paused else time.monotonic() - self.last
            if silent < self.warn_s:
                warned = 0.0
            if 0 < self.abort_s <= silent:
                self._say(f"nothing for {silent:.0f} s, the whole job ends", stack=True)
                end_job(1)
            if 0 < self.warn_s <= silent and silent - warned >= self.warn_s:
                warned = silent
                self._say(f"nothing for {silent:.0f} s", stack=False)

    def _say(self, what: str, *, stack: bool) -> None:
        frame = sys._current_frames().get(self.main)
        calls = traceback.extract_stack(frame) if frame else []
        at = f"{calls[-1].filename}:{calls[-1].lineno} in {calls[-1].name}" if calls else "nowhere"
        text = (
            f"mgwfbp: rank {self.rank} on {socket.gethostname()}: {what}; {self.doing()}; the main thread is at {at}\n"
        )
        # One write: the ranks share the terminal.
        sys.stderr.write(text + ("".join(traceback.format_list(calls)) if stack else ""))
        sys.stderr.flush()
