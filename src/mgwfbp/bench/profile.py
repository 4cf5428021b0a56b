"""Measure a net on this machine without training it: real iterations on synthetic images, with a learning rate of 0."""

from __future__ import annotations

from functools import partial

import numpy as np

from mgwfbp.comm import Comm, World, agree, open_comm, own_transport, poll_interval_s
from mgwfbp.data import Batch, Share, load, slice_of_rank
from mgwfbp.kernels import Kernels, threads
from mgwfbp.models import build
from mgwfbp.net import fuse
from mgwfbp.net.layers import Step
from mgwfbp.optim.sgd import SGD
from mgwfbp.runs.start import load_kernels
from mgwfbp.schedule import Schedule, Workload, unmerged, workload_from_times
from mgwfbp.train.exchange import make_exchange
from mgwfbp.train.gradients import Gradients
from mgwfbp.train.step import train_step
from mgwfbp.train.times import Done


class SyntheticRun:
    """A net on synthetic images, `batch_size` a rank, the same on all ranks. Collective.

    Raises UserError on all ranks for an unknown model, or if ranks differ in what they were asked for.
    """

    def __init__(self, world: World, model: str, batch_size: int, seed: int, kernels: Kernels) -> None:
        self.world, self.batch_size, self.seed, self.number = world, batch_size, seed, 0
        with world.together():
            poll_interval_s()
            self.net = net = fuse(build(model)).allocate(seed=seed, kernels=kernels)
            shape = "x".join(str(size) for size in net.input.shape)
            self.data = load(f"synthetic:{shape}x{net.classes}", seed=seed)
        options = [f"batch_size={batch_size}", f"seed={seed}", f"kernel set {kernels.name}"]
        agree(world.comm, "model or options", [net.name, *net.arena.description(), *options])
        part = slice_of_rank(batch_size * world.size, world.rank, world.size)
        indices = np.arange(part.start, part.stop) % len(self.data.train_labels)
        self.share = Share(indices, part.start, batch_size * world.size)

    def batch(self) -> Batch:
        """The next batch: always the same images."""
        step = Step(iteration=self.number, first_row=self.share.first_row, seed=self.seed)
        self.number += 1
        return Batch(step.iteration, 0, self.share, step, False, False, partial(self._load, step.iteration))

    def iteration(self, comm: Comm, schedule: Schedule) -> Done:
        """One iteration under `schedule` in its steady state; all ranks begin together. Collective.

        Of a schedule that runs into forward it is the second of two: the first leaves it something to wait for.
        """
        add = self.world.add if self.world.size > 1 else None
        optimizer = SGD(lr=0.0).open(self.net.arena, self.net.kernels, add)
        gradients = Gradients(self.net.arena, self.net.kernels, self.world)
        exchange = make_exchange(schedule, comm, self.net, optimizer, gradients)
        self.world.comm.Barrier()
        for _ in range(2 if schedule.runs_into_forward else 1):
            done = train_step(self.net, exchange, self.batch())
        exchange.drain()
        return done

    def _load(self, iteration: int) -> tuple[np.ndarray, np.ndarray]:
        images, labels = self.data.train_batch(self.share, self.seed, iteration)
        return self.data.normalised(images, self.net.arena.parameters.dtype), labels


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
        arena = run.net.arena
        comm = open_comm(world, arena, own_transport(world, len(arena.gradients), kernels.xp))
        schedule = unmerged(len(run.net.learnable))
        done = [run.iteration(comm, schedule) for _ in range(iterations + 1)]
        comm.close()
    times = [iteration.times for iteration in done[1:]]
    source = f"measured by mgwfbp profile: median of {iterations} iterations, maximum over {world.size} ranks"
    return workload_from_times(run.net.name, batch_size, arena.layers, times, world.max, source)
