"""Let one layer do the work of its neighbours: BatchNorm, Add and ReLU in one pass over memory."""

from __future__ import annotations

from mgwfbp.net.layers import Add, BatchNorm2d, ReLU
from mgwfbp.net.net import Net


def fuse(net: Net) -> Net:
    """Fuse what only one layer uses: BatchNorm or Add with the ReLU behind, BatchNorm with the Add behind.

    The layers stay where they are, so places, names and announcements do not change: one does the work, the other
    hands on what it gets. Returns the net; call it before the first forward.
    """
    users: dict[int, int] = {}
    for sources in net.sources:
        for source in sources:
            users[source] = users.get(source, 0) + 1
    for head in net.heads:  # a loss sees what the node itself makes, not what the layer behind makes of it
        users[head.node] = users.get(head.node, 0) + 1
    for layer, sources in zip(net.layers, net.sources, strict=True):
        if isinstance(layer, Add):
            for place, source in enumerate(sources):
                before = net.layers[source - 1]
                if source > 0 and users[source] == 1 and isinstance(before, BatchNorm2d) and not before.relu:
                    layer.norm, layer.norm_place, before.deferred = before, place, True
                    break
        if isinstance(layer, ReLU) and sources[0] > 0 and users[sources[0]] == 1:
            before = net.layers[sources[0] - 1]
            if isinstance(before, BatchNorm2d | Add):
                before.relu = layer.fused = True
    return net
