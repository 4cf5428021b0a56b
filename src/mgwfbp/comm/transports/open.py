"""The transport of a run and what its messages cost: measured at the start, given, or measured again."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from mgwfbp.comm.agree import agree
from mgwfbp.comm.child import device_check
from mgwfbp.comm.measure import benchmark_sizes, measure_all_reduce
from mgwfbp.comm.pieces import measure_pieces
from mgwfbp.comm.sums.chosen import check_way
from mgwfbp.comm.transports.choose import choose_transport
from mgwfbp.comm.transports.device import DeviceTransport, StagedTransport
from mgwfbp.comm.transports.emulated import EmulatedTransport
from mgwfbp.comm.transports.host import HostTransport, Transport, most_elements, poll_interval_s
from mgwfbp.comm.transports.registry import TRANSPORTS
from mgwfbp.comm.world import World
from mgwfbp.errors import SharedError
from mgwfbp.schedule import AffineCost, Network, TableCost, network_of
from mgwfbp.schedule.cost import with_half_the_bytes


def open_transport(
    world: World,
    largest: int,
    cost: AffineCost | TableCost | None,
    halves: bool = False,
    *,
    xp: Any = np,
    wanted: str | None = None,
    algorithm: str = "mpi",
    wire: str = "fp32",
) -> tuple[Transport, AffineCost | TableCost, Network]:
    """(the transport, what its messages cost, and the network that has this cost). Collective.

    It carries float32 arrays of the module `xp` of up to `largest` bytes, and is the one called `wanted` (by default
    what MGWFBP_TRANSPORT names, else auto); its `reason` says why. It sums by `algorithm` with `wire` on the way
    (comm/sums/chosen.py). Raises UserError on all ranks, if that cannot be.

    With `cost` (of float32) it is emulated; without, this network's own cost is measured up to `largest` bytes, with
    `halves` that of the two halves of an all-reduce, too. The algorithm auto takes the fastest at each size, and sends
    long messages in pieces where that is faster; the wire auto takes bf16 where it is, and for all that is emulated.
    """
    # A little more than the arena: the measured sizes are rounded up.
    inner = own_transport(world, largest // 4 + 1024, xp, wanted, algorithm, wire)
    if cost is None:
        if type(inner) in (HostTransport, StagedTransport) and algorithm == "auto":
            measure_pieces(world, inner, largest)
        network = measure_again(world, inner, largest, halves)
        return inner, network.cost, network
    if wire != "fp32":
        inner.take("direct", "bf16")
        cost = with_half_the_bytes(cost)
    emulated = EmulatedTransport(inner, cost, world, inner.comm)
    sizes = [0, *benchmark_sizes(largest)]
    return emulated, cost, network_of(cost, sizes, f"given; {emulated.name}", world.size)


def own_transport(
    world: World, elements: int, xp: Any, wanted: str | None = None, algorithm: str = "mpi", wire: str = "fp32"
) -> Any:
    """The transport for float32 arrays of the module `xp` with at most `elements` elements, unmeasured. Collective.

    One that hands device memory to MPI is tried first, and auto takes another if its sums are wrong. `wanted`,
    `algorithm`, `wire`, and what is raised, as of `open_transport`.
    """
    wanted = wanted or os.environ.get("MGWFBP_TRANSPORT") or "auto"
    with world.together():
        most, told = most_elements(), os.environ.get("MGWFBP_MAX_MESSAGE")  # told: then pieces are not measured
        poll_interval_s()
        choice = choose_transport(wanted, xp)
        check_way(algorithm, wire)
    lines = [
        f"transport {choice.name}",
        f"MGWFBP_MAX_MESSAGE {most if told else 'not set'}",
        f"algorithm {algorithm}",
        f"wire {wire}",
    ]
    agree(world.comm, "transport", lines)
    transport = TRANSPORTS[choice.name].make(world.comm.Dup(), xp, elements)
    transport.reason = choice.reason
    if isinstance(transport, DeviceTransport) and (fault := _fault(world, transport, elements, wanted != "auto")):
        transport.close()
        if wanted != "auto":
            raise SharedError(f"--transport {choice.name}: {fault}; run with --transport staged")
        transport = TRANSPORTS["staged"].make(world.comm.Dup(), xp, elements)
        transport.reason = f"{choice.reason}, but {fault}"
    if type(transport) in (HostTransport, StagedTransport):
        transport.take(algorithm, wire)
    elif (algorithm, wire) not in (("auto", "fp32"), ("mpi", "fp32")):
        raise SharedError(
            f"--algorithm {algorithm} --wire {wire}: the transport {transport.name} sums in its own way; "
            "these are for host and staged"
        )
    return transport


def _fault(world: World, transport: DeviceTransport, elements: int, asked: bool) -> str | None:
    """Why `transport` is not to be trusted, equal on all ranks; None if it is. Collective.

    First one rank of each machine tries MPI in a process of its own, which may end by it; then all of them in this one.
    A card in exclusive mode takes no other process, and where it was `asked` for the first trial is left out there.
    """
    alone: dict[str, Any] = {"works": True}
    if world.local_rank == 0 and not (asked and transport.exclusive):
        alone = device_check(transport.device.id)
    found = world.comm.allgather(None if alone["works"] else alone["error"])
    if not any(found):
        wrong = transport.wrong_sums(elements)
        found = world.comm.allgather(wrong and f"its {wrong} of device memory gives other sums than the host's")
    return next((f"rank {rank}: {fault}" for rank, fault in enumerate(found) if fault), None)


def measure_again(world: World, transport: Transport, largest: int, halves: bool = False) -> Network:
    """What the messages of `transport` cost now. Collective; no message on its way."""
    network = measure_all_reduce(world, largest, transport=transport, halves=halves)
    if isinstance(transport, HostTransport):
        transport.cost = network.cost
    return network
