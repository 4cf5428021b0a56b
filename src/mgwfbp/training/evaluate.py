"""Validation: every sample counted once, whatever the number of ranks."""

from __future__ import annotations

from mgwfbp.comm import World
from mgwfbp.data import Dataset, slice_of_rank
from mgwfbp.layers import Step
from mgwfbp.network import Network

CHUNK = 250  # samples at a time


def evaluate(world: World, network: Network, data: Dataset) -> tuple[float, float]:
    """(mean loss, accuracy) on the validation part, the same on all ranks. Collective.

    The ranks' running statistics (BatchNorm) are averaged first, so all ranks judge the same net.
    """
    if len(network.state) and world.size > 1:
        network.state[...] = network.kernels.xp.asarray(world.sum(network.state.tolist())) / world.size
    part = slice_of_rank(len(data.val_labels), world.rank, world.size)
    loss, correct = 0.0, 0
    for start in range(part.start, part.stop, CHUNK):
        chunk = slice(start, min(start + CHUNK, part.stop))
        images = data.normalised(data.val_images[chunk], network.arena.parameters.dtype)
        chunk_loss, chunk_correct = network.forward(
            images, data.val_labels[chunk], Step(training=False), len(data.val_labels)
        )
        loss, correct = loss + chunk_loss, correct + chunk_correct
    loss, correct_all = world.sum([loss, correct])
    return loss, correct_all / len(data.val_labels)
