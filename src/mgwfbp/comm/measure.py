"""How long does an all-reduce take here? A short measurement, a table and a line through it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mgwfbp.comm.library import mpi_version
from mgwfbp.comm.sums.buffers import Sums
from mgwfbp.comm.sums.chosen import Chosen, fastest, label
from mgwfbp.comm.transports.host import HostTransport, Transport
from mgwfbp.comm.world import World
from mgwfbp.errors import UserError
from mgwfbp.schedule import Network, TableCost

SMALLEST_NBYTES = 256
FACTOR = 4
OURS = ("host", "staged", "device", "device-blocking")  # transports that sum by their `ways`
LONG_NBYTES = 1 << 20  # from here on start-ups decide nothing


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
    seconds_a_size: float = 0.02,
    most_repeats: int = 50,
    transport: Transport | None = None,
    halves: bool = False,
) -> Network:
    """Time all-reduces of 256 B to `largest` bytes; returns what the network costs. Collective.

    A size is repeated for about `seconds_a_size` (5 to `most_repeats` times, after one warm-up); its time is the median
    over the repetitions, averaged over the ranks. `a_s` and `b_s_per_byte` are the line that minimises the relative
    errors, `r2` how well it explains the table. With `halves` reduce-scatter and all-gather are timed, too.

    Where the transport has several ways to sum (`ways`), each is timed, and from here on it takes the fastest at each
    size; the times are those of the fastest. Two messages are enough to see that a way takes twice as long as another,
    and what loses so at LONG_NBYTES loses above it, too.
    """
    sizes = benchmark_sizes(largest)
    with world.together():
        transport = transport or HostTransport(world.comm)
        try:
            memory = transport.xp.ones(sizes[-1] // 4, np.float32)
        except (MemoryError, ValueError):
            raise UserError(f"no memory for a message of {sizes[-1]:,} bytes; choose a smaller largest one") from None

    def measured(call: Callable[[Any], None], best: list[float]) -> list[float]:
        times = []
        for size, other in zip(sizes, best, strict=True):
            buffer = memory[: size // 4]
            buffer[...] = 0
            transport.wait_for(transport.mark())
            once = _time(world, call, buffer)
            # All ranks must repeat equally often, so rank 0's clock decides.
            if world.comm.bcast(once >= 2 * other, root=0):  # or was it only that the first one touches new memory?
                once = min(once, _time(world, call, buffer))
            repeats = int(np.clip(seconds_a_size / max(once, 1e-7), 5, most_repeats)) if once < 2 * other else 0
            repeats = world.comm.bcast(repeats, root=0)
            times.append(float(np.median([_time(world, call, buffer) for _ in range(repeats)])) if repeats else once)
            if not repeats and size >= LONG_NBYTES:
                times += [np.inf] * (len(sizes) - len(times))
                break
        return [total / world.size for total in world.sum(times)]

    ways: list[Sums | None] = [*transport.ways] if isinstance(transport, HostTransport) else [None]
    calls = {"all_reduce": transport.all_reduce}
    if halves:
        calls |= {"reduce_scatter": transport.reduce_scatter, "all_gather": transport.all_gather}
    seconds: dict[str, list[list[float]]] = {name: [] for name in calls}
    for way in ways:
        if way is not None:
            transport.sums = way  # type: ignore[attr-defined]
        for name, call in calls.items():
            best = [min(column) for column in zip(*seconds[name], strict=True)] or [np.inf] * len(sizes)
            seconds[name].append(measured(call, best))
    chosen = world.comm.bcast({name: fastest(tables) for name, tables in seconds.items()}, root=0)
    if len(ways) > 1:
        served = {name: [ways[place] for place in chosen[name]] for name in calls}
        scatters, gathers = served.get("reduce_scatter"), served.get("all_gather")
        transport.sums = Chosen(  # type: ignore[attr-defined]
            sizes, served["all_reduce"], scatters or served["all_reduce"], gathers or served["all_reduce"]
        )
    taken = {
        name: tuple(tables[place][size] for size, place in enumerate(chosen[name])) for name, tables in seconds.items()
    }
    names = [label(way) if way and transport.name in OURS else transport.name for way in ways]
    table = TableCost(tuple(map(float, sizes)), taken["all_reduce"])
    where = f"{world.size} ranks, {world.local_size} on this machine, transport {transport.name}"
    line = table.affine
    return Network(
        f"measured: {where}, {mpi_version()}",
        world.size,
        tuple(sizes),
        taken["all_reduce"],
        line.a,
        line.b,
        line.r2,
        taken.get("reduce_scatter"),
        taken.get("all_gather"),
        tuple(names[place] for place in chosen["all_reduce"]),
        {name: tuple(row) for name, row in zip(names, seconds["all_reduce"], strict=True)},
        "bf16" if all(way is not None and way.wire == "bf16" for way in ways) else "fp32",
    )


def _time(world: World, call: Callable[[np.ndarray], None], buffer: np.ndarray) -> float:
    world.comm.Barrier()
    start = time.perf_counter()
    call(buffer)
    return time.perf_counter() - start
