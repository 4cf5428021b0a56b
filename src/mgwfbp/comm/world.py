"""Ranks: who am I, how many are we, who shares my machine; and what they say to each other between iterations."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mgwfbp.comm.guard import install
from mgwfbp.comm.launch import meant_more
from mgwfbp.comm.mpi import MPI, start
from mgwfbp.errors import SharedError, UserError

LARGEST = 2**26  # elements of one message that nobody times


class World:
    """This process among all: `comm` (mpi4py), `rank`, `size`, `local_rank`, `local_size` (ranks on this machine), and
    `threads`, the cores this rank can count on.

    Making one is collective. All ranks raise SharedError if one of them gives a `mistake`, which is what its user did
    wrong before MPI was started, if they name different `command`s, or if MPI was started without THREAD_MULTIPLE,
    which the comm thread needs. MPI is started, if nobody has. With `guard` (the default) an exception that nobody
    caught, or an exit with a code, ends all ranks from then on; `comm` are all ranks by default.
    """

    def __init__(
        self, comm: MPI.Intracomm | None = None, mistake: str | None = None, *, command: str = "", guard: bool = True
    ) -> None:
        start()
        comm = MPI.COMM_WORLD if comm is None else comm
        if mistake is None and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            mistake = (
                "this MPI was started without THREAD_MULTIPLE, which the comm thread needs; "
                "unset MPI4PY_RC_THREAD_LEVEL, or use an MPI built with thread support"
            )
        if mistake is None and comm == MPI.COMM_WORLD:
            mistake = meant_more(comm.Get_size(), MPI.get_vendor()[0])
        commands = comm.allgather((command, mistake))
        other = next((rank for rank, (name, _) in enumerate(commands) if name != commands[0][0]), None)
        if other is not None and all(message is None for _, message in commands):
            mistake = f"ranks run different commands: rank 0 {commands[0][0]}, rank {other} {commands[other][0]}"
        _raise_together(comm, mistake)
        if comm == MPI.COMM_WORLD and guard:
            install(comm)
        self.comm = comm
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        # A shared-memory split tells the truth under every launcher; the launchers' variables do not.
        node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        self.local_rank: int = node.Get_rank()
        self.local_size: int = node.Get_size()
        own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
        all_local = set().union(*node.allgather(own))
        node.Free()
        self.cores, self.own_cores = len(all_local), len(own)  # of this machine that its ranks may use; of this rank
        self.threads = max(1, min(len(own), len(all_local) // self.local_size))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around what a rank does alone and may fail at by a user's mistake: if one fails, all do, with its message.

        Without it the others would wait in their next collective for the rank that left. The body must not communicate.
        """
        mistake = None
        try:
            yield
        except UserError as error:
            mistake = str(error)
        _raise_together(self.comm, mistake)

    def node_gather(self, value: Any) -> list[Any]:
        """The `value` of each rank on this machine, in the order of their local ranks. Collective."""
        node = self.comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        try:
            return node.allgather(value)
        finally:
            node.Free()

    def max(self, values: Sequence[float]) -> list[float]:
        """The largest of each of `values` over all ranks."""
        return self._reduce(values, MPI.MAX)

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sum of each of `values` over all ranks."""
        return self._reduce(values, MPI.SUM)

    def add(self, array: np.ndarray) -> None:
        """Make `array` its sum over all ranks, in place, in as many messages as it takes."""
        for first in range(0, len(array), LARGEST):
            self.comm.Allreduce(MPI.IN_PLACE, array[first : first + LARGEST], MPI.SUM)

    def _reduce(self, values: Sequence[float], operation: MPI.Op) -> list[float]:
        result = np.array(values, float)
        self.comm.Allreduce(MPI.IN_PLACE, result, operation)
        return result.tolist()


@contextmanager
def closed_together(close: Callable[[], None]) -> Iterator[None]:
    """`close()` at the end, which all ranks reach together: by themselves, or by an error that all of them raise.

    If this rank alone leaves, the whole job ends, and waiting for the others would only keep it from that.
    """
    try:
        yield
    except SharedError:
        close()
        raise
    else:
        close()


def _raise_together(comm: MPI.Intracomm, mistake: str | None) -> None:
    """Raise SharedError on all ranks if `mistake` is not None on one of them. Collective."""
    found = comm.allgather((mistake, socket.gethostname()))
    failed = [rank for rank, (message, _) in enumerate(found) if message is not None]
    if failed:
        message, host = found[failed[0]]
        raise SharedError(message if len(failed) == len(found) else f"rank {failed[0]} on {host}: {message}")
