"""Which rank, which layer: the origin of a loss or gradient that is NaN or infinite."""

from __future__ import annotations

from math import isfinite

from mgwfbp.comm import World
from mgwfbp.data import Share
from mgwfbp.layers import Step
from mgwfbp.network import Network
from mgwfbp.training.batches import Batch


def origin(world: World, network: Network, batch: Batch, loss: float, share: Share, step: Step) -> str:
    """One line that names the rank and the layer of the first value that is not finite. Collective.

    The sums over the ranks say only that one of them is bad, so each rank repeats its forward and backward pass, which
    is the same to the last bit, and looks at its own gradients. They are overwritten.
    """
    bad = None
    images, labels = batch(share, step)
    if len(labels):
        network.forward(images, labels, step, share.global_batch)
        network.backward()
        sums = [float(network.arena.gradients[part].sum()) for part in network.arena.layer_slices]
        bad = next((name for name, total in zip(network.arena.names, sums, strict=True) if not isfinite(total)), None)
    found = world.comm.allgather((loss, bad))
    for rank, (value, layer) in enumerate(found):
        if not isfinite(value):
            return f"the loss of rank {rank} is {value}" + (f", its gradients from layer {layer} on" if layer else "")
    for rank, (_, layer) in enumerate(found):
        if layer:
            return f"the gradient of layer {layer} on rank {rank} is not finite"
    return "the sum of the ranks' gradients is not finite, though each rank's own are"
