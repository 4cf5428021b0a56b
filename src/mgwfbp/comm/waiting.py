"""No silent hang: a rank that gets no further says for how long, where it stands, and who waits for whom.

One rank knows its own messages and the line at which its main thread stands; the reports of all ranks, side by side,
name the one that is late. MPI itself says nothing, however long it waits.
"""

from __future__ import annotations

import socket
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from mgwfbp.comm.mpi import end_job
from mgwfbp.comm.starting import WARN_S, patience

IDLE = "nothing of this rank is on its way"
SLOW = 4  # times as long may take what has no beats: a checkpoint, a measurement, reading data
PACKAGE = Path(__file__).parents[1]
NOT_OURS = ("<frozen ", sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))


class Watch:
    """A thread that expects a `beat` every `warn_s` seconds, and ends the job after `abort_s`; 0 turns either off.

    It reports on the thread that enters it, of rank `rank` of `size`; `doing` says what this rank's messages do. Where
    one is entered within another the outer one goes on watching, and the inner one is quiet.
    """

    entered = 0  # how many are, in this process

    def __init__(
        self, rank: int, size: int, warn_s: float, abort_s: float = 0.0, doing: Callable[[], str] = lambda: ""
    ) -> None:
        self.rank, self.size, self.warn_s, self.abort_s, self.doing = rank, size, warn_s, abort_s, doing
        self.factor = 1  # of abort_s
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        self.main, self.done = threading.get_ident(), threading.Event()
        self.beat()
        waits = [seconds for seconds in (self.warn_s, self.abort_s) if seconds > 0]
        if waits and not Watch.entered:
            self._thread = threading.Thread(target=self._run, args=(min(waits),), name="watchdog", daemon=True)
            self._thread.start()
        Watch.entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        Watch.entered -= 1
        self.done.set()
        if self._thread is not None:
            self._thread.join(1.0)  # it wakes at once

    def beat(self) -> None:
        """Something was finished."""
        self.last = time.monotonic()

    @contextmanager
    def patiently(self) -> Iterator[None]:
        """Around what may take long and has no beat: it is told as ever, but ends the job `SLOW` times later."""
        before, self.factor = self.factor, SLOW
        self.beat()
        try:
            yield
        finally:
            self.beat()
            self.factor = before

    def _run(self, shortest: float) -> None:
        warned = 0.0
        while not self.done.wait(min(1.0, shortest / 4)):
            silent = time.monotonic() - self.last
            if silent < self.warn_s:
                warned = 0.0
            if 0 < self.abort_s * self.factor <= silent:
                self._say(f"nothing for {silent:.0f} s, the whole job ends", stack=True)
                end_job(1)
            if 0 < self.warn_s <= silent and silent - warned >= max(warned, self.warn_s):  # after 30, 60, 120, … s
                warned = silent
                self._say(f"nothing for {silent:.0f} s", stack=False)

    def _say(self, what: str, *, stack: bool) -> None:
        frame = sys._current_frames().get(self.main)
        calls = traceback.extract_stack(frame) if frame else []
        # One write: the ranks share the terminal.
        text = f"mgwfbp: rank {self.rank} on {socket.gethostname()}: {what}; {self._where(calls)}\n"
        sys.stderr.write(text + ("".join(traceback.format_list(calls)) if stack else ""))
        sys.stderr.flush()

    def _where(self, calls: list[traceback.FrameSummary]) -> str:
        at, waits = place(calls)
        if self.size == 1:
            return f"the main thread is at {at}"
        doing = self.doing()
        if waits:
            where = f"the main thread waits for other ranks at {at}"
        elif doing in ("", IDLE):
            where = f"the main thread is at {at}; if other ranks wait, they wait for this one"
        else:
            where = f"the main thread is at {at}"
        return f"{doing}; {where}" if doing else where


@contextmanager
def waiting(rank: int, size: int, warn_s: float = WARN_S) -> Iterator[None]:
    """Around a collective that ranks may come to late, or never: after a while this one says that it waits."""
    with Watch(rank, size, patience(warn_s)) if size > 1 else nullcontext():
        yield


def place(calls: list[traceback.FrameSummary]) -> tuple[str, bool]:
    """(the line that a reader wants to see of a stack, whether it waits there for other ranks).

    That is the innermost one that is neither Python's or another package's, nor in this room, where ranks meet.
    """
    own = [call for call in calls if _is_ours(call.filename)]
    waits = bool(own) and _in_this_room(own[-1].filename)
    seen = [call for call in own if not _in_this_room(call.filename)] or own or calls
    if not seen:
        return "its end", False
    call = seen[-1]
    return f"{call.filename}:{call.lineno} in {call.name}" + (f": {call.line}" if call.line else ""), waits


def _is_ours(filename: str) -> bool:
    """Whether a file is the user's or this package's."""
    if Path(filename).is_relative_to(PACKAGE):
        return True
    return not filename.startswith(NOT_OURS) and not {"site-packages", "dist-packages"} & set(Path(filename).parts)


def _in_this_room(filename: str) -> bool:
    return Path(filename).is_relative_to(PACKAGE / "comm")
