"""Let one layer do the work of its neighbours: BatchNorm, Add and ReLU in one pass over memory."""

from __future__ import annotations

from mgwfbp.layers import Add, BatchNorm2d, ReLU
from mgwfbp.network import Network


def fuse(network: Network) -> Network:
    """Fuse what only one layer uses: BatchNorm or Add with the ReLU behind, BatchNorm with the Add behind.

    The layers stay where they are, so places, names and announcements do not change: one does the work, the other
    hands on what it gets. Returns the network; call it once, before the first forward.
    """
    users: dict[int, int] = {}
    for sources in network.sources:
        for source in sources:
            users[source] = users.get(source, 0) + 1
    for layer, sources in zip(network.layers, network.sources, strict=True):
        if isinstance(layer, Add):
            for place, source in enumerate(sources):
                before = network.layers[source - 1]
                if source > 0 and users[source] == 1 and isinstance(before, BatchNorm2d) and not before.relu:
                    layer.norm, layer.norm_place, before.deferred = before, place, True
                    break
        if isinstance(layer, ReLU) and sources[0] > 0 and users[sources[0]] == 1:
            before = network.layers[sources[0] - 1]
            if isinstance(before, BatchNorm2d | Add):
                before.relu = layer.fused = True
    return network
