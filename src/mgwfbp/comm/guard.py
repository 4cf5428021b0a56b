"""A rank that leaves by itself must not leave the others waiting: hooks for exceptions and exits that nobody caught.

Installed by the first `World` of several ranks, so it holds for scripts that import the library, too.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import time
from types import TracebackType
from typing import Any

from mgwfbp.comm.mpi import MPI, abort_job, end_job
from mgwfbp.errors import SharedError

# How long a rank that is done waits for the others to be done: after sys.exit with a code; until it says so; at most.
EXIT_S, WARN_S, END_S = 2.0, 5.0, 300.0


class Guard:
    """The hooks of this process. `agreed` is set by whoever makes all ranks leave alike, and knows that they do."""

    def __init__(self, comm: Any) -> None:
        self.comm, self.agreed = comm.Dup(), False
        self.code: object = None
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
        self.code = code
        self.exit(code)  # type: ignore[arg-type]

    def _leave(self) -> None:
        if self.agreed or MPI.Is_finalized():
            return
        rank, host = self.comm.Get_rank(), socket.gethostname()
        request, start, warned = self.comm.Ibarrier(), time.monotonic(), False
        while not request.Test():
            waited = time.monotonic() - start
            if waited > EXIT_S and self.code not in (None, 0):  # the others would be here if they left, too
                sys.stderr.write(f"mgwfbp: rank {rank} on {host} left by sys.exit({self.code!r}); the whole job ends\n")
                end_job(self.code if isinstance(self.code, int) and 0 < self.code < 256 else 1)
            if waited > WARN_S and not warned:
                warned = True
                sys.stderr.write(f"mgwfbp: rank {rank} on {host} is done and waits for ranks that are not\n")
            if waited > END_S:
                sys.stderr.write(f"mgwfbp: rank {rank} on {host} waited {END_S:.0f} s; the whole job ends\n")
                end_job(1)
            time.sleep(1e-3)


_guard: Guard | None = None


def install(comm: Any) -> None:
    """Install the hooks, once a process. Collective."""
    global _guard
    if _guard is None and comm.Get_size() > 1:
        _guard = Guard(comm)


def leave_alike() -> None:
    """All ranks are about to leave in agreement, whatever their exit code."""
    if _guard is not None:
        _guard.agreed = True
