"""Let a layer do the work of the ReLU behind it: one pass over memory less in each direction."""

from __future__ import annotations

from mgwfbp.layers import Add, BatchNorm2d, ReLU
from mgwfbp.network import Network


def fuse_relu(network: Network) -> Network:
    """Fuse every ReLU that is the only user of a BatchNorm's or an Add's output into that layer. Returns the network.

    The layers stay where they are, so places, names and announcements do not change: the first takes the maximum with
    0, the ReLU behind it hands on what it gets. Call it once, before the first forward.
    """
    users: dict[int, int] = {}
    for sources in network.sources:
        for source in sources:
            users[source] = users.get(source, 0) + 1
    for layer, sources in zip(network.layers, network.sources, strict=True):
        if isinstance(layer, ReLU) and sources[0] > 0 and users[sources[0]] == 1:
            before = network.layers[sources[0] - 1]
            if isinstance(before, BatchNorm2d | Add):
                before.relu = layer.fused = True
    return network
