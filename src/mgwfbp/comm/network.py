"""The transport of a run and what its messages cost: measured at the start, given, or measured again."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from mgwfbp.comm.agree import agree
from mgwfbp.comm.benchmark import measure_all_reduce, network_of
from mgwfbp.comm.choose import choose_transport, make_transport
from mgwfbp.comm.device import DeviceTransport
from mgwfbp.comm.emulated import EmulatedTransport
from mgwfbp.comm.transport import HostTransport, Transport, most_elements, poll_interval_s
from mgwfbp.comm.world import World
from mgwfbp.schedule import AffineCost, TableCost


def open_transport(
    world: World,
    largest: int,
    cost: AffineCost | TableCost | None,
    halves: bool = False,
    *,
    xp: Any = np,
    wanted: str | None = None,
) -> tuple[Transport, AffineCost | TableCost, dict[str, Any]]:
    """(the transport, what its messages cost, that as the object of a NETWORK file). Collective.

    It carries float32 arrays of the module `xp` of up to `largest` bytes, and is the one called `wanted` (by default
    what MGWFBP_TRANSPORT names, else auto); its `reason` says why. Raises UserError on all ranks, if that cannot be.

    With `cost` it is emulated; without, this network's own cost is measured up to `largest` bytes, and with `halves`
    that of the two halves of an all-reduce.
    """
    # A little more than the arena: the measured sizes are rounded up.
    inner = own_transport(world, largest // 4 + 1024, xp, wanted)
    if cost is None:
        network = measure_again(world, inner, largest, halves)
        return inner, table_of(network), network
    emulated = EmulatedTransport(inner, cost, world, inner.comm)
    return emulated, cost, network_of(cost, largest, f"given; {emulated.name}", world.size)


def own_transport(world: World, elements: int, xp: Any, wanted: str | None = None) -> HostTransport:
    """The transport for float32 arrays of the module `xp` with at most `elements` elements, unmeasured. Collective.

    `wanted`, and what is raised, as of `open_transport`.
    """
    with world.together():
        most = most_elements()
        poll_interval_s()
        choice = choose_transport(wanted or os.environ.get("MGWFBP_TRANSPORT") or "auto", xp)
    agree(world.comm, "transport", [f"transport {choice.name}", f"MGWFBP_MAX_MESSAGE {most}"])
    transport = make_transport(choice, world.comm.Dup(), xp, elements)
    if isinstance(transport, DeviceTransport):
        transport.check(elements)
    return transport


def measure_again(world: World, transport: Transport, largest: int, halves: bool = False) -> dict[str, Any]:
    """What the messages of `transport` cost now, as the object of a NETWORK file. Collective; no message on its way."""
    network = measure_all_reduce(world, largest, transport=transport, halves=halves)
    if isinstance(transport, HostTransport):
        transport.cost = table_of(network)
    return network


def table_of(network: dict[str, Any]) -> TableCost:
    """The cost in the object of a NETWORK file that was measured."""
    nbytes = tuple(map(float, network["nbytes"]))
    parts = [TableCost(nbytes, tuple(network[key])) for key in ("reduce_scatter_s", "all_gather_s") if key in network]
    return TableCost(nbytes, tuple(network["seconds"]), (parts[0], parts[1]) if len(parts) == 2 else None)
