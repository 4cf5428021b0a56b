"""MPI itself: loaded here, started by the first World; and how a job ends when something is wrong."""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback

from mgwfbp.comm.launch import leftovers, wrong_launcher
from mgwfbp.comm.starting import start_watched
from mgwfbp.errors import UserError

try:
    import mpi4py

    mpi4py.rc.initialize, mpi4py.rc.finalize = False, True  # `start` starts it, after a look at who started us
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    raise UserError(
        f"no MPI library can be loaded ({str(error).splitlines()[0]}); install one into the environment with "
        "pip install 'mgwfbp[mpich]', or load the site's MPI and install mpi4py against it"
    ) from None


def start() -> None:
    """Start MPI, if nobody has. Raises UserError if the launcher is one that this MPI library does not understand.

    Variables of a launcher that started somebody else are taken out of the environment first (`launch.leftovers`).
    """
    if not MPI.Is_initialized():
        library = MPI.Get_library_version()
        for name in leftovers(library):
            del os.environ[name]
        if advice := wrong_launcher(library):
            raise UserError(advice)
        with start_watched():
            MPI.Init_thread(MPI.THREAD_MULTIPLE)


def abort_job(where: str, error: BaseException) -> None:
    """End the whole job: print the traceback of `error` with this rank, its host and `where`, then MPI_Abort."""
    text = "".join(traceback.format_exception(error))
    rank = MPI.COMM_WORLD.Get_rank()
    # One write: the ranks share the terminal.
    sys.stderr.write(f"mgwfbp: rank {rank} on {socket.gethostname()} failed {where}; the whole job ends\n{text}")
    end_job(1)


def end_job(code: int) -> None:
    """End all ranks, which would wait for this one for ever; the launcher exits with `code`."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(0.3)  # MPICH's launcher stops reading when it hears of the abort: let it pass on what was printed
    MPI.COMM_WORLD.Abort(code)
