"""Ranks: who am I, how many are we, who shares my machine; and what they say to each other between iterations."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mgwfbp.comm.guard import install, wrong_patience
from mgwfbp.comm.launch import meant_more
from mgwfbp.comm.mpi import MPI, start
from mgwfbp.comm.starting import START_S
from mgwfbp.comm.waiting import waiting
from mgwfbp.errors import SharedError, UserError

LARGEST = 2**26  # elements of one message that nobody times


class World:
    """This process among all: `comm` (mpi4py), `rank`, `size`, `local_rank`, `local_size` (ranks on this machine), and
    `threads`, the cores this rank can count on.

    Making one is collective. All ranks raise SharedError if one of them gives a `mistake`, which is what its user did
    wrong before MPI was started, if they name different `command`s, or if MPI was started without THREAD_MULTIPLE,
    which the comm thread needs. MPI is started, if nobody has; ranks that wait long for others say so. With `guard`
    (the default) an exception that nobody caught, or an exit with a code, ends all ranks from then on; `comm` are all
    ranks by default.
    """

    def __init__(
        self, comm: MPI.Intracomm | None = None, mistake: str | None = None, *, command: str = "", guard: bool = True
    ) -> None:
        start()
        self.comm = comm = MPI.COMM_WORLD if comm is None else comm
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        with waiting(self.rank, self.size, START_S):
            if comm == MPI.COMM_WORLD and guard:
                install(comm)
            self._check(mistake, command)
        machines = self._machines()
        self.machine = machines[self.rank]
        here = [rank for rank, machine in enumerate(machines) if machine == self.machine]
        self.local_rank, self.local_size = here.index(self.rank), len(here)
        own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
        all_local = set().union(*self.node_gather(own))
        self.cores, self.own_cores = len(all_local), len(own)  # of this machine that its ranks may use; of this rank
        self.threads = max(1, min(len(own), len(all_local) // self.local_size))

    def _check(self, mistake: str | None, command: str) -> None:
        """Raise SharedError on all ranks if one was started wrong, or they differ in what they do. Collective."""
        if mistake is None and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            mistake = (
                "this MPI was started without THREAD_MULTIPLE, which the comm thread needs; "
                "unset MPI4PY_RC_THREAD_LEVEL, or use an MPI built with thread support"
            )
        if mistake is None and self.comm == MPI.COMM_WORLD:
            mistake = meant_more(self.size, MPI.get_vendor()[0]) or wrong_patience()
        commands = self.comm.allgather((command, mistake))
        other = next((rank for rank, (name, _) in enumerate(commands) if name != commands[0][0]), None)
        if other is not None and all(message is None for _, message in commands):
            mistake = f"ranks run different commands: rank 0 {commands[0][0]}, rank {other} {commands[other][0]}"
        _raise_together(self.comm, mistake)

    def _machines(self) -> list[int]:
        """The machine of each rank, by the first rank on it. Collective.

        MPI groups ranks that share memory, which is right under every launcher, as the launchers' variables are not.
        But it may see none: switched off, or in containers. So ranks of one host and one start of its kernel belong
        together, too.
        """
        shared = self.comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        everyone = self.comm.allgather((shared.bcast(self.rank), host()))
        shared.Free()
        nodes, hosts = zip(*everyone, strict=True)
        machines = joined(nodes, hosts)
        self.apart = machines != joined(nodes)  # whether MPI takes ranks of one machine for ranks of several
        if self.apart and self.rank == 0:
            _say_apart()
        return machines

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
        node = self.comm.Split(self.machine, self.rank)
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


def host() -> str | None:
    """A name of this machine that no other has: its host name, and its kernel's start. None where that is unknown."""
    try:
        return f"{socket.gethostname()} {Path('/proc/sys/kernel/random/boot_id').read_text()}"
    except OSError:
        return None


def joined(*groupings: Sequence[object]) -> list[int]:
    """For each rank the first one that is in its group, if ranks with one value in any of `groupings` belong together.

    None says nothing.
    """
    first, before = list(range(len(groupings[0]))), None
    while first != before:  # a chain of groups takes several rounds
        before = first
        for values in groupings:
            least: dict[object, int] = {}
            for rank, value in enumerate(values):
                least[value] = min(first[rank], least.get(value, first[rank]))
            first = [own if value is None else least[value] for own, value in zip(first, values, strict=True)]
    return first


@cache
def _say_apart() -> None:
    sys.stderr.write(
        "mgwfbp: MPI takes ranks of one machine for ranks of several: their messages do not go through shared memory "
        "(MPIR_CVAR_NOLOCAL, containers, /dev/shm?); cores and GPUs are shared out by host names\n"
    )


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
    with waiting(comm.Get_rank(), comm.Get_size()):
        found = comm.allgather((mistake, socket.gethostname()))
    failed = [rank for rank, (message, _) in enumerate(found) if message is not None]
    if failed:
        message, host = found[failed[0]]
        raise SharedError(message if len(failed) == len(found) else f"rank {failed[0]} on {host}: {message}")
