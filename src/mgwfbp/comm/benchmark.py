"""How long does an all-reduce take here? A short measurement, a table and a line through it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mgwfbp.comm.transport import HostTransport, Transport
from mgwfbp.comm.world import MPI, World
from mgwfbp.errors import UserError
from mgwfbp.schedule import AffineCost, Cost, TableCost

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
) -> dict[str, Any]:
    """Time all-reduces of 256 B to `largest` bytes; returns the object of a NETWORK file. Collective.

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
    both: dict[str, Callable[[np.ndarray], None]] = {}
    if halves:
        both = {"reduce_scatter_s": transport.reduce_scatter, "all_gather_s": transport.all_gather}
    return {
        "source": f"measured: {world.size} ranks, {world.local_size} on this machine, transport {transport.name}, "
        + MPI.Get_library_version().splitlines()[0].strip("\0 ").replace("\t", " "),
        "ranks": world.size,
        "nbytes": sizes,
        "seconds": seconds,
        **{key: measured(call) for key, call in both.items()},
        "a_s": table.affine.a,
        "b_s_per_byte": table.affine.b,
        "r2": table.affine.r2,
    }


def network_of(cost: AffineCost | TableCost, largest: int, source: str, ranks: int) -> dict[str, Any]:
    """The object of a NETWORK file for a cost that is known: as `measure_all_reduce` gives it for a measured one."""
    sizes = list(cost.nbytes) if isinstance(cost, TableCost) else [0, *benchmark_sizes(largest)]
    seconds = [float(cost(float(size))) for size in sizes]
    line = cost.affine if isinstance(cost, TableCost) else cost
    parts: list[Cost] = [*cost.halves] if cost.halves else []
    halves = dict(zip(("reduce_scatter_s", "all_gather_s"), parts, strict=False))
    r2 = cost.affine.r2 if isinstance(cost, TableCost) else 1.0
    return {
        "source": source,
        "ranks": ranks,
        "nbytes": sizes,
        "seconds": seconds,
        **{key: [float(part(float(size))) for size in sizes] for key, part in halves.items()},
        "a_s": line.a,
        "b_s_per_byte": line.b,
        "r2": r2,
    }


def _time(world: World, call: Callable[[np.ndarray], None], buffer: np.ndarray) -> float:
    world.comm.Barrier()
    start = time.perf_counter()
    call(buffer)
    return time.perf_counter() - start
