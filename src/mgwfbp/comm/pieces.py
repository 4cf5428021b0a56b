"""In pieces of which size does a long message go? Measured when a run starts.

Over sockets MPICH (UCX) sends the two directions of a message of 8 MB and more one after the other, at random: it then
takes half as long again. In pieces it does not, but each has its start-up (benchmarks/messages.py --pieces).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import numpy as np

from mgwfbp.comm.sums.chosen import clearly_best
from mgwfbp.comm.transports.host import HostTransport
from mgwfbp.comm.world import World

PIECES = tuple(1 << power for power in (18, 19, 20, 21))  # float32 elements: 1, 2, 4, 8 MiB
TRIED_NBYTES = 16 << 20  # of the message that is sent in pieces: twice the size from which the fault is seen
SECONDS = 0.5  # that the rounds may take, of which there are at least two
ENOUGH = 0.97  # of the whole message's time: what pieces must beat to be taken
STEP_S = 0.3e-3  # how far ranks are apart when they begin


def measure_pieces(world: World, transport: HostTransport, largest: int) -> None:
    """Let `transport` send pieces (`most` elements each) of the size that is the fastest. Collective.

    A message of up to `largest` bytes is repeated in pieces of each size in turn, the ranks not quite in step, while
    they compute. Judged by the median and the upper quartile, as the fault does not strike each time. Nothing is
    measured, or changed, where messages are short or MGWFBP_MAX_MESSAGE says how long they may be.
    """
    most, elements = transport.most, min(largest, TRIED_NBYTES) // 4
    sizes = [most, *(piece for piece in PIECES if piece < min(elements, most))]
    if len(sizes) == 1 or "MGWFBP_MAX_MESSAGE" in os.environ:
        return
    array = transport.xp.zeros(elements, np.float32)
    transport.wait_for(transport.mark())

    def took(piece: int, rounds: int) -> float:
        transport.most = piece
        world.comm.Barrier()
        time.sleep(STEP_S * ((world.rank + rounds) % world.size))
        start = time.perf_counter()
        transport.all_reduce(array)
        return time.perf_counter() - start

    with _computing(transport.xp is np):
        once = took(most, 0)
        rounds = world.comm.bcast(int(np.clip(SECONDS / (len(sizes) * once), 2, 9)), root=0)
        times = [[took(piece, number) for piece in sizes] for number in range(rounds)]
    columns = [sorted(column) for column in zip(*times, strict=True)]
    scores = world.sum([median(column) + column[3 * len(column) // 4] for column in columns])
    transport.most = world.comm.bcast(sizes[clearly_best(scores, ENOUGH)], root=0)


@contextmanager
def _computing(wanted: bool) -> Iterator[None]:
    """While this lasts a thread of this rank computes, as backward does."""
    over = threading.Event()
    matrix = np.full((192, 192), 1e-3, np.float32)

    def compute() -> None:
        while not over.is_set():
            np.dot(matrix, matrix)

    thread = threading.Thread(target=compute, daemon=True)
    if wanted:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if wanted:
            thread.join()
