"""How long does an all-reduce take here? A short measurement, a table and a line through it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mgwfbp.comm.library import mpi_version
from mgwfbp.comm.transports.host import HostTransport, Transport
from mgwfbp.comm.world import World
from mgwfbp.errors import UserError
from mgwfbp.schedule import Network, TableCost

SMALLEST_NBYTES = 256
FACTOR = 4


def benchmark_sizes(largest: int) -> list[int]:
    """256 B, 1 KiB, 4 KiB, … and `largest` (bytes, rounded up to 256) itself: the sizes to measure."""
    largest = max(FACTOR * SMALLEST_NBYTES, -(-largest // SMALLEST_NBYTES) * SMALLEST_NBYTES)
    sizes, size = [], SMALLEST_NBYTES
    while size < largest:
        sizes.append(size)
        size *= FACTOR
    return [*sizes, largest]


def measure_all_reduce(
    world: World,
    largest: int,
    *,
    seconds_a_size: float = 0.03,
    most_repeats: int = 50,
    transport: Transport | None = None,
    halves: bool = False,
) -> Network:
    """Time all-reduces of 256 B to `largest` bytes; returns what the network costs. Collective.

    A size is repeated for about `seconds_a_size` (5 to `most_repeats` times, after one warm-up); its time is the median
    over the repetitions, averaged over the ranks. `a_s` and `b_s_per_byte` are the line that minimises the relative
    errors, `r2` how well it explains the table. With `halves` reduce-scatter and all-gather are timed, too.
    """
    sizes = benchmark_sizes(largest)
    with world.together():
        transport = transport or HostTransport(world.comm)
        try:
            memory = transport.xp.ones(sizes[-1] // 4, np.float32)
        except (MemoryError, ValueError):
            raise UserError(f"no memory for a message of {sizes[-1]:,} bytes; choose a smaller largest one") from None

    def measured(call: Callable[[Any], None]) -> list[float]:
        times = []
        for size in sizes:
            buffer = memory[: size // 4]
            buffer[...] = 0
            transport.wait_for(transport.mark())
            once = _time(world, call, buffer)
            # All ranks must repeat equally often, so rank 0's clock decides.
            repeats = world.comm.bcast(int(np.clip(seconds_a_size / max(once, 1e-7), 5, most_repeats)), root=0)
            times.append(float(np.median([_time(world, call, buffer) for _ in range(repeats)])))
        return [total / world.size for total in world.sum(times)]

    seconds = measured(transport.all_reduce)
    table = TableCost(tuple(map(float, sizes)), tuple(seconds))
    both = [transport.reduce_scatter, transport.all_gather] if halves else []
    where = f"{world.size} ranks, {world.local_size} on this machine, transport {transport.name}"
    scatter, gather = (tuple(measured(call)) for call in both) if both else (None, None)
    line = table.affine
    return Network(
        f"measured: {where}, {mpi_version()}",
        world.size,
        tuple(sizes),
        tuple(seconds),
        line.a,
        line.b,
        line.r2,
        scatter,
        gather,
    )


def _time(world: World, call: Callable[[np.ndarray], None], buffer: np.ndarray) -> float:
    world.comm.Barrier()
    start = time.perf_counter()
    call(buffer)
    return time.perf_counter() - start
