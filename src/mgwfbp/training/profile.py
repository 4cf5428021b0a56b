"""Measure a net's layer times on this machine, without training it."""

from __future__ import annotations

import numpy as np

from mgwfbp.comm import World, agree, open_comm, poll_interval_s
from mgwfbp.data import Share, load, slice_of_rank
from mgwfbp.fusion import fuse
from mgwfbp.kernels import threads
from mgwfbp.layers import Step
from mgwfbp.measure.profiler import workload_from_times
from mgwfbp.models import build
from mgwfbp.schedule import Workload, unmerged
from mgwfbp.training.batches import batches
from mgwfbp.training.iteration import run_iteration
from mgwfbp.training.optimizer import SGD
from mgwfbp.training.start import load_kernels


def profile(
    world: World, model: str, batch_size: int, iterations: int, seed: int = 1, count: int | None = None
) -> Workload:
    """The workload of `model` at `batch_size` a rank, from `iterations` unmerged iterations after one to warm up.

    Collective. The iterations are real ones, messages included, on synthetic images with a learning rate of 0.
    """
    kernels = load_kernels(world, None)
    with threads(count or world.threads):
        with world.together():
            poll_interval_s()
            network = fuse(build(model)).allocate(seed=seed, kernels=kernels)
            shape = "x".join(str(size) for size in network.input.shape)
            data = load(f"synthetic:{shape}x{network.classes}", seed=seed)
        options = [f"batch_size={batch_size}", f"iterations={iterations}", f"seed={seed}", f"kernel set {kernels.name}"]
        agree(world.comm, "model or options", [network.name, *network.arena.description(), *options])
        comm = open_comm(world, network.arena)
        optimizer = SGD(network.arena, network.kernels, lr=0.0)
        part = slice_of_rank(batch_size * world.size, world.rank, world.size)
        share = Share(np.arange(part.start, part.stop) % len(data.train_labels), part.start, batch_size * world.size)
        batch = batches(data, network.arena.parameters.dtype)
        schedule = unmerged(len(network.learnable))
        done = [
            run_iteration(network, comm, optimizer, schedule, share, batch, Step(iteration=number, seed=seed))
            for number in range(iterations + 1)
        ]
        comm.close()
    times = [iteration.times for iteration in done[1:]]
    source = f"measured by mgwfbp profile: median of {iterations} iterations, maximum over {world.size} ranks"
    return workload_from_times(network.name, batch_size, network.arena, times, world.max, source)
