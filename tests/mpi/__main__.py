"""`mpirun -n 2 python -m tests.mpi`: pytest on every rank, but rank 0 speaks. One that failed speaks too, and ends all.

`mpirun -n 2 python -m pytest --with-mpi tests/mpi` runs the same tests with every rank talking.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import pytest
from mpi4py import MPI


def main() -> int:
    comm = MPI.COMM_WORLD
    arguments = ["--with-mpi", "-q", "-x", str(Path(__file__).parent), *sys.argv[1:]]
    if comm.rank == 0:
        code = int(pytest.main(arguments))
    else:
        with tempfile.TemporaryFile() as quiet:
            terminal = os.dup(1)
            os.dup2(quiet.fileno(), 1)
            code = int(pytest.main(arguments))
            sys.stdout.flush()
            os.dup2(terminal, 1)
            if code:
                quiet.seek(0)
                print(f"rank {comm.rank}:\n{quiet.read().decode(errors='replace')}")
    sys.stdout.flush()
    if code and comm.size > 1:
        time.sleep(1)  # time for the others to fail alike, and for the launcher to pass on what was printed
        comm.Abort(code)  # the others wait for this rank in the test that it left
    return code


if __name__ == "__main__":
    sys.exit(main())
