"""A rank that leaves by itself must not leave the others waiting: hooks for exceptions and exits that nobody caught.

Installed by the first `World` of several ranks, so it holds for scripts that import the library, too.
"""

from __future__ import annotations

import atexit
import dis
import os
import socket
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from mgwfbp.comm.mpi import MPI, abort_job, end_job
from mgwfbp.errors import SharedError, UserError

# How long a rank that is done waits for the others to be done: after sys.exit with a code; until it says so.
EXIT_S, WARN_S = 2.0, 5.0


class Guard:
    """The hooks of this process. `agreed` is set by whoever makes all ranks leave alike, and knows that they do.

    A rank that is done waits for the others as long as they take, or as long as MGWFBP_EXIT_S says.
    """

    def __init__(self, comm: Any) -> None:
        self.comm, self.agreed = comm.Dup(), False
        self.code: object = None
        self.script: FrameType | None = None  # the first frame of the script that called sys.exit
        self.before, self.exit = sys.excepthook, sys.exit
        sys.excepthook = self._exception
        sys.exit = self._exit  # type: ignore[assignment]
        atexit.register(self._leave)

    def _exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self.agreed:
            self.before(kind, error, trace)
        elif isinstance(error, SharedError):
            self._leave_alike(error)
        else:
            abort_job("in the main thread", error.with_traceback(trace))

    def _leave_alike(self, error: SharedError) -> None:
        """All ranks raise the same: rank 0 says it, in one line, and all leave by themselves, with the error's code."""
        if self.comm.Get_rank() == 0:
            sys.stderr.write(f"mgwfbp: error: {' '.join(str(error).split())}\n")
        self.agreed = True
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        if not MPI.Is_finalized():
            MPI.Finalize()
        os._exit(getattr(error, "code", 2))  # a hook cannot change the 1 that Python would leave with

    def _exit(self, code: object = None) -> None:
        self.code, self.script = code, outermost(sys._getframe())
        self.exit(code)  # type: ignore[arg-type]

    def _left_by(self) -> object:
        """The code with which sys.exit ended the script; None if it ended otherwise, as by working on after it."""
        ended_by_itself = self.script is None or returned(self.script)
        return None if ended_by_itself or self.code == 0 else self.code

    def _leave(self) -> None:
        if self.agreed or MPI.Is_finalized():
            return
        rank, host, code, end_s = self.comm.Get_rank(), socket.gethostname(), self._left_by(), patience()
        request, start, warned = self.comm.Ibarrier(), time.monotonic(), False
        while not request.Test():
            waited = time.monotonic() - start
            if waited > EXIT_S and code is not None:  # the others would be here if they left, too
                sys.stderr.write(f"mgwfbp: rank {rank} on {host} left by sys.exit({code!r}); the whole job ends\n")
                end_job(code if isinstance(code, int) and 0 < code < 256 else 1)
            if waited > WARN_S and not warned:
                warned = True
                sys.stderr.write(
                    f"mgwfbp: rank {rank} on {host} is done and waits for ranks that are not"
                    + ("; MGWFBP_EXIT_S=60 would end the job after a minute\n" if end_s is None else "\n")
                )
            if end_s is not None and waited > end_s:
                sys.stderr.write(
                    f"mgwfbp: rank {rank} on {host} is done and waited {end_s:g} s (MGWFBP_EXIT_S) for ranks that "
                    "are not; the whole job ends\n"
                )
                end_job(1)
            time.sleep(1e-3)


def outermost(frame: FrameType) -> FrameType | None:
    """The first frame of the script, if this is the main thread; sys.exit in another one ends only that."""
    if threading.current_thread() is not threading.main_thread():
        return None
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def returned(frame: FrameType) -> bool:
    """Whether a frame that is over came to its end, and not to that of an exception."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")


_guard: Guard | None = None


def wrong_patience() -> str | None:
    """What is wrong with MGWFBP_EXIT_S, if anything is."""
    try:
        patience()
    except UserError as error:
        return str(error)
    return None


def patience() -> float | None:
    """MGWFBP_EXIT_S, the seconds that a rank that is done waits for the others; None if it is not set: for ever."""
    text = os.environ.get("MGWFBP_EXIT_S")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value > 0:
        raise UserError(f"MGWFBP_EXIT_S={text}: must be a number of seconds above 0")
    return value


def install(comm: Any) -> None:
    """Install the hooks, once a process. Collective."""
    global _guard
    if _guard is None and comm.Get_size() > 1:
        _guard = Guard(comm)


def leave_alike() -> None:
    """All ranks are about to leave in agreement, whatever their exit code."""
    if _guard is not None:
        _guard.agreed = True
