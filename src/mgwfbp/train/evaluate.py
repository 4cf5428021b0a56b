"""Validation: every sample counted once, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mgwfbp.comm import World
from mgwfbp.data import Data, slice_of_rank
from mgwfbp.errors import SharedError
from mgwfbp.net import Net, to_host
from mgwfbp.net.layers import Step

CHUNK = 250  # samples at a time, if that is not more values than the kernel set takes


def evaluate(world: World, net: Net, data: Data, beat: Callable[[], None] | None = None) -> tuple[float, float]:
    """(mean loss, accuracy) on the validation part, the same on all ranks. Collective.

    The ranks' running statistics (BatchNorm) are averaged first, so all ranks judge the same net. `beat`, if given,
    is called after each chunk of samples. Raises SharedError if there is no sample to judge by.
    """
    if len(net.state) and world.size > 1:
        own = float(net.trained) if world.max([net.trained]) == [1.0] else 1.0  # a rank without samples knows nothing
        (*sums, ranks) = world.sum([*(to_host(net.state) * own).tolist(), own])
        net.state[...] = net.kernels.xp.asarray(sums) / ranks
    part = slice_of_rank(len(data.val_labels), world.rank, world.size)
    loss, correct, count = 0.0, 0, 0
    chunk = max(1, min(CHUNK, net.kernels.values_at_once // int(np.prod(data.shape))))
    for start in range(part.start, part.stop, chunk):
        images, labels = data.val_batch(slice(start, min(start + chunk, part.stop)))
        if not len(labels):
            continue
        images = data.normalised(net.kernels.xp.asarray(images), net.arena.parameters.dtype)
        mean_loss, chunk_correct = net.forward(images, labels, Step(training=False))
        if beat:
            beat()
        loss, correct = loss + float(mean_loss) * len(labels), correct + int(chunk_correct)
        count += len(labels)
    loss, correct_all, samples = world.sum([loss, correct, count])
    if not samples:
        raise SharedError(f"data set {data.name}: no image of the validation part can be decoded")
    return loss / samples, correct_all / samples
