"""The transport of a run and what its messages cost: measured at the start, given, or measured again."""

from __future__ import annotations

from typing import Any

from mgwfbp.comm.agree import agree
from mgwfbp.comm.benchmark import measure_all_reduce, network_of
from mgwfbp.comm.emulated import EmulatedTransport
from mgwfbp.comm.transport import HostTransport, Transport, most_elements, poll_interval_s
from mgwfbp.comm.world import World
from mgwfbp.schedule import AffineCost, TableCost


def open_transport(
    world: World, largest: int, cost: AffineCost | TableCost | None
) -> tuple[Transport, AffineCost | TableCost, dict[str, Any]]:
    """(the transport, what its messages cost, that as the object of a NETWORK file). Collective.

    With `cost` it is emulated; without, this network's own cost is measured up to `largest` bytes.
    """
    with world.together():
        most = most_elements()
        poll_interval_s()
    agree(world.comm, "largest message", [f"MGWFBP_MAX_MESSAGE {most}"])
    comm = world.comm.Dup()
    host = HostTransport(comm)
    if cost is None:
        network = measure_again(world, host, largest)
        return host, table_of(network), network
    emulated = EmulatedTransport(host, cost, world, comm)
    return emulated, cost, network_of(cost, largest, f"given; {emulated.name}", world.size)


def measure_again(world: World, transport: Transport, largest: int) -> dict[str, Any]:
    """What the messages of `transport` cost now, as the object of a NETWORK file. Collective; no message on its way."""
    network = measure_all_reduce(world, largest, transport=transport)
    if isinstance(transport, HostTransport):
        transport.cost = table_of(network)
    return network


def table_of(network: dict[str, Any]) -> TableCost:
    """The cost in the object of a NETWORK file that was measured."""
    return TableCost(tuple(map(float, network["nbytes"])), tuple(network["seconds"]))
