"""MPI's start returns when all ranks have called it; a rank that waits there for long says so."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mgwfbp.comm.launch import meant

START_S, WARN_S = 10.0, 30.0  # until it is said: that ranks do not start MPI; that they do not come to a message

# It must not be this process that speaks: MPI_Init keeps all its Python threads waiting.
SPEAKER = """
import select, sys
pause, waited = float(sys.argv[1]), 0.0
while not select.select([0], [], [], pause)[0]:
    waited += pause
    pause = waited
    sys.stderr.write(f"{sys.argv[2]} has waited {waited:.0f} s in MPI_Init for ranks that do not start MPI; "
                     "do all run the same command, and can their machines reach each other?\\n")
    sys.stderr.flush()
"""


@contextmanager
def start_watched() -> Iterator[None]:
    """Around MPI's start, which returns when all ranks have called it, and until then keeps all Python threads waiting.

    So another process speaks, where a launcher started several: it ends with this one, or with the closing of its
    input.
    """
    speaker = _speaker()
    try:
        yield
    finally:
        if speaker is not None:
            speaker.communicate()


def _speaker() -> subprocess.Popen[bytes] | None:
    rank, seconds = meant(), patience(START_S)
    if rank is None or seconds <= 0 or not sys.executable:
        return None
    who = f"mgwfbp: rank {rank.rank} of {rank.size} (by {rank.variable}) on {socket.gethostname()}"
    command = [sys.executable, "-I", "-S", "-c", SPEAKER, str(seconds), who]
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    except OSError:  # no more processes for this user: MPI's start goes on as it would
        return None


def patience(most: float = WARN_S) -> float:
    """Seconds until a rank says that it waits: what MGWFBP_STALL_WARN says, as the option --stall-warn, or `most`."""
    try:
        return min(most, float(os.environ.get("MGWFBP_STALL_WARN", WARN_S)))
    except ValueError:  # whoever has the option complains
        return most
