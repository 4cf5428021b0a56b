"""Measure a net on this machine without training it: real iterations on synthetic images, with a learning rate of 0."""

from __future__ import annotations

import numpy as np

from mgwfbp.comm import Comm, World, agree, open_comm, own_transport, poll_interval_s
from mgwfbp.data import Share, load, slice_of_rank
from mgwfbp.fusion import fuse
from mgwfbp.kernels import Kernels, threads
from mgwfbp.layers import Step
from mgwfbp.measure.profiler import workload_from_times
from mgwfbp.models import build
from mgwfbp.schedule import Schedule, Workload, unmerged
from mgwfbp.schedule.workload import SHARDED
from mgwfbp.training.batches import batches
from mgwfbp.training.in_flight import InFlight
from mgwfbp.training.iteration import Iteration, run_iteration
from mgwfbp.training.optimizer import SGD
from mgwfbp.training.start import load_kernels


class SyntheticRun:
    """A net on synthetic images, `batch_size` a rank, the same on all ranks. Collective.

    Raises UserError on all ranks for an unknown model, or if ranks differ in what they were asked for.
    """

    def __init__(self, world: World, model: str, batch_size: int, seed: int, kernels: Kernels) -> None:
        self.world, self.batch_size, self.seed, self.number = world, batch_size, seed, 0
        with world.together():
            poll_interval_s()
            self.network = network = fuse(build(model)).allocate(seed=seed, kernels=kernels)
            shape = "x".join(str(size) for size in network.input.shape)
            data = load(f"synthetic:{shape}x{network.classes}", seed=seed)
        options = [f"batch_size={batch_size}", f"seed={seed}", f"kernel set {kernels.name}"]
        agree(world.comm, "model or options", [network.name, *network.arena.description(), *options])
        part = slice_of_rank(batch_size * world.size, world.rank, world.size)
        indices = np.arange(part.start, part.stop) % len(data.train_labels)
        self.share = Share(indices, part.start, batch_size * world.size)
        self.batch = batches(data, network.arena.parameters.dtype)

    def iteration(self, comm: Comm, schedule: Schedule) -> Iteration:
        """One iteration under `schedule` in its steady state; all ranks begin together. Collective.

        Of a schedule that runs into forward it is the second of two: the first leaves it something to wait for.
        """
        optimizer = SGD(self.network.arena, self.network.kernels, lr=0.0, world=self.world)
        if schedule.mode == SHARDED:
            optimizer.keep(comm.own(schedule))
        flight = InFlight(comm, self.network.arena, optimizer)
        self.world.comm.Barrier()
        for _ in range(2 if schedule.runs_into_forward else 1):
            step = Step(iteration=self.number, first_row=self.share.first_row, seed=self.seed)
            self.number += 1
            done = run_iteration(self.network, flight, schedule, self.share, self.batch, step)
        flight.drain()
        return done


def profile(
    world: World, model: str, batch_size: int, iterations: int, seed: int = 1, count: int | None = None
) -> Workload:
    """The workload of `model` at `batch_size` a rank, from `iterations` unmerged iterations after one to warm up.

    Collective; messages included.
    """
    kernels = load_kernels(world, None)
    with threads(count or world.threads):
        run = SyntheticRun(world, model, batch_size, seed, kernels)
        agree(world.comm, "options", [f"iterations {iterations}"])
        comm = open_comm(world, run.network.arena, own_transport(world, len(run.network.arena.gradients), kernels.xp))
        schedule = unmerged(len(run.network.learnable))
        done = [run.iteration(comm, schedule) for _ in range(iterations + 1)]
        comm.close()
    times = [iteration.times for iteration in done[1:]]
    source = f"measured by mgwfbp profile: median of {iterations} iterations, maximum over {world.size} ranks"
    return workload_from_times(run.network.name, batch_size, run.network.arena, times, world.max, source)
