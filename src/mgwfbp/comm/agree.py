"""Do all ranks mean the same? Compared before the first message, because MPI would not notice.

An all-reduce whose ranks disagree about sizes or order returns wrong sums without an error (MPICH) or hangs (Open MPI).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import zip_longest

from mgwfbp.comm.mpi import MPI
from mgwfbp.comm.world import World
from mgwfbp.errors import SharedError
from mgwfbp.net import Net, to_host


def agree(comm: MPI.Intracomm, what: str, lines: Sequence[str]) -> None:
    """Raise SharedError on all ranks unless `lines`, which describe `what`, are equal on all of them.

    The message names both fingerprints (SHA-256 of the lines, shortened) and the first line that differs. Collective.
    """
    fingerprint = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    everyone = comm.allgather(fingerprint)
    other = next((rank for rank, theirs in enumerate(everyone) if theirs != everyone[0]), None)
    if other is None:
        return
    first, second = comm.bcast(list(lines), root=0), comm.bcast(list(lines), root=other)
    mine, theirs = next(pair for pair in zip_longest(first, second, fillvalue="nothing") if pair[0] != pair[1])
    raise SharedError(
        f"ranks differ in their {what}, nothing was sent: rank 0 has fingerprint {everyone[0]} with [{mine}], "
        f"rank {other} has {everyone[other]} with [{theirs}]; start all ranks with the same command and version"
    )


def share_weights(world: World, net: Net) -> None:
    """Give all ranks the parameters and the state of rank 0. Collective."""
    for array in (net.arena.parameters, net.frozen, net.state):
        whole = to_host(array)
        world.comm.Bcast(whole, root=0)
        array[...] = net.kernels.xp.asarray(whole)
