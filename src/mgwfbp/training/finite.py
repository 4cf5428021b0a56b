"""Which rank, which layer: the origin of a loss or gradient that is NaN or infinite."""

from __future__ import annotations

from math import isfinite

from mgwfbp.comm import World
from mgwfbp.data import Share
from mgwfbp.layers import Step
from mgwfbp.network import Network
from mgwfbp.training.batches import Batch


def origin(
    world: World, network: Network, batch: Batch, loss: float, share: Share, step: Step, *, untouched: bool = True
) -> str:
    """One line that names the rank and the layer of the first value that is not finite. Collective.

    The sums over the ranks say only that one of them is bad, so each rank repeats its forward and backward pass and
    looks at its own gradients. They are overwritten. If the bad sums have gone into the parameters already (not
    `untouched`), a repetition says nothing, and only a loss can name its rank.
    """
    bad = None
    images, labels = batch(share, step)
    if untouched and len(labels):
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
    if not untouched:
        return "a sum of gradients is not finite (--schedule optimal on the CPU names the layer)"
    return "the sum of the ranks' gradients is not finite, though each rank's own are"
