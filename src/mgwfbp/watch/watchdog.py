"""No silent hang: says what a rank waits for when nothing goes on, and ends the job when nothing does for long."""

from __future__ import annotations

import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from mgwfbp.comm import end_job
from mgwfbp.data import Batch
from mgwfbp.train.loop import Hook, Trainer
from mgwfbp.train.times import Done


class Watchdog(Hook):
    """A thread that expects a `beat` every `warn_s` seconds while a run lasts, and ends the job after `abort_s`.

    0 turns either off.
    """

    def __init__(self, warn_s: float = 30.0, abort_s: float = 300.0) -> None:
        self.warn_s, self.abort_s = warn_s, abort_s
        self._paused = False

    def open(self, trainer: Trainer) -> AbstractContextManager[Any]:
        """Begin to watch this thread."""
        self.trainer, self.rank = trainer, trainer.world.rank
        return self._watching()

    def after(self, batch: Batch, done: Done) -> None:
        """An iteration is over."""
        self.beat()

    @contextmanager
    def _watching(self) -> Iterator[None]:
        self.main, self.done = threading.get_ident(), threading.Event()
        self.beat()
        waits = [seconds for seconds in (self.warn_s, self.abort_s) if seconds > 0]
        thread = threading.Thread(target=self._run, args=(min(waits, default=0),), name="watchdog", daemon=True)
        if waits:
            thread.start()
        try:
            yield
        finally:
            self.done.set()
            if waits:
                thread.join(1.0)  # it wakes at once

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
        who = f"rank {self.rank} on {socket.gethostname()}"
        text = f"mgwfbp: {who}: {what}; {self.trainer.comm.doing}; the main thread is at {at}\n"
        # One write: the ranks share the terminal.
        sys.stderr.write(text + ("".join(traceback.format_list(calls)) if stack else ""))
        sys.stderr.flush()
