"""The whole run: the same start on all ranks, profile, plan, train by the plan, validate, sum up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from math import ceil
from typing import Any

import numpy as np

from mgwfbp.comm import World, open_comm, open_transport
from mgwfbp.data import Share, shares
from mgwfbp.errors import SharedError, StoppedError
from mgwfbp.kernels import Kernels, threads
from mgwfbp.layers import Step
from mgwfbp.schedule import AffineCost, Schedule, TableCost
from mgwfbp.schedule.workload import PIPELINED, SHARDED
from mgwfbp.training.batches import batches, with_fault
from mgwfbp.training.config import Config
from mgwfbp.training.evaluate import evaluate
from mgwfbp.training.fault import fault_from_environment
from mgwfbp.training.finite import origin
from mgwfbp.training.in_flight import InFlight
from mgwfbp.training.iteration import run_iteration
from mgwfbp.training.lr import lr_policy
from mgwfbp.training.optimizer import SGD
from mgwfbp.training.planner import Planner
from mgwfbp.training.record import Record
from mgwfbp.training.report import Reporter
from mgwfbp.training.resume import leave_checkpoint, restore
from mgwfbp.training.signals import EXIT_CODE, Stop
from mgwfbp.training.start import crowded, load_kernels, same_start
from mgwfbp.training.watchdog import Watchdog


def train(config: Config, world: World | None = None, emulated: AffineCost | TableCost | None = None) -> dict[str, Any]:
    """Train as `config` says on all ranks; returns the summary (the object of summary.json), equal on all ranks.

    With `emulated`, the cost of the network that `config.network` names, each message takes that long.
    Collective. Raises UserError, on all ranks alike, for what the user can mend.
    """
    world = world or World()
    # Loaded before the threads are set: only libraries that are there can be told.
    kernels = load_kernels(world, config.kernels, config.math, config.share_gpu)
    # NumPy's overflow warnings would say on every rank, line by line, what the check of the loss says once.
    with threads(config.threads or world.threads), np.errstate(over="ignore", invalid="ignore"):
        return _train(config, world, kernels, emulated)


def _train(config: Config, world: World, kernels: Kernels, emulated: AffineCost | TableCost | None) -> dict[str, Any]:
    network, data, global_batch, folder, checkpoint = same_start(config, world, kernels, emulated)
    with world.together():
        fault = fault_from_environment()
    samples = len(data.train_labels)
    iterations = config.total_iterations(samples, global_batch)
    optimizer = SGD(
        network.arena,
        network.kernels,
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.nesterov,
        clip_norm=config.clip_norm,
        world=world,
    )
    transport, all_reduce = None, None
    if world.size > 1:
        nbytes, xp = network.arena.gradients.nbytes, kernels.xp
        transport, _, all_reduce = open_transport(
            world, nbytes, emulated, config.may_shard, xp=xp, wanted=config.transport
        )
    lr_factor = lr_policy(config.lr_policy)
    comm = open_comm(world, network.arena, transport)
    flight = InFlight(comm, network.arena, optimizer)
    with ExitStack() as signals, Reporter(iterations, folder is None, world.size) as reporter:
        reporter.start(config, world, network, global_batch, all_reduce)
        if transport is not None and transport.reason and kernels.name == "cupy":
            reporter.line(f"transport {transport.name}: {transport.reason}")
        for warning in crowded(world, config.threads):
            reporter.line(warning)
        record = Record(world, network.arena, folder, reporter, config.timeline_iterations)
        first, plan = restore(config, world, checkpoint, network, optimizer, record)
        if first:
            reporter.line(f"resumed after iteration {first}")
        profile_until = first + max(1, min(config.profile_iterations, (iterations - first) // 2))
        batch_size, accuracy = global_batch // world.size, 0.0
        planner = Planner(
            config, world, network, batch_size, transport, all_reduce, reporter, profile_until, plan, flight.drain
        )
        batch = batches(data, network.arena.parameters.dtype, config.shift, config.flip)
        if fault is not None:
            batch = with_fault(batch, fault, world.rank)
        signals.push(partial(_drained, flight))
        stop = signals.enter_context(Stop(world))
        watchdog = signals.enter_context(
            Watchdog(world.rank, config.stall_warn, config.stall_abort, lambda: comm.doing)
        )
        items = islice(_shares(config, world, samples, global_batch, iterations), first, None)
        followed: Schedule | None = None
        before: tuple[int, float, Share, Step] | None = None
        for number, epoch, share, epoch_ends in _ahead(items, lambda n, s: data.expect(s, config.seed, n)):
            with watchdog.paused():
                schedule = planner.schedule(number, record)
                if schedule != followed:
                    flight.drain()
                    flight.check(world, number)
                    optimizer.keep(comm.own(schedule) if schedule.mode == SHARDED else None)
                    followed = schedule
            optimizer.lr = config.lr * lr_factor(number, iterations)
            step = Step(iteration=number, first_row=share.first_row, seed=config.seed)
            skip = config.on_nan == "skip"
            state = network.state.copy() if skip else None
            done = run_iteration(network, flight, schedule, share, batch, step, whole=skip)
            now = number, done.loss, share, step
            if not done.finite:
                flight.drain()
                bad = before if schedule.mode == PIPELINED and before else now
                untouched = skip or (schedule.mode != PIPELINED and kernels.xp is np)
                where = f"iteration {bad[0] + 1}: {origin(world, network, batch, *bad[1:], untouched=untouched)}"
                if not skip:
                    raise SharedError(
                        f"{where}: training has diverged, or its data is bad; try a smaller --lr, or --on-nan skip"
                    )
                reporter.line(f"{where}; skipped, nothing was changed")
                network.state[...] = state
            before = now
            full = share.global_batch == global_batch
            record.add(number, done, share.global_batch, full, planner.plan)
            if full:
                planner.add(done.times)
            due = epoch_ends if config.checkpoint_every is None else (number + 1) % config.checkpoint_every == 0
            watchdog.beat()
            signal = stop.asked(number, planner.plan.iteration_s if planner.plan else None)
            due = due or signal is not None or number + 1 == iterations
            if epoch_ends or due:
                flight.drain()
            if epoch_ends or due or (number + 1) % config.log_every == 0:
                record.flush(epoch)
                flight.check(world, number + 1)
            if epoch_ends:
                val_loss, accuracy = evaluate(world, network, data, watchdog.beat)
                record.epoch(epoch, val_loss, accuracy)
            if due:
                place = folder.path if folder else None
                with watchdog.paused():
                    leave_checkpoint(
                        world, config, place, number + 1, network, optimizer, record, planner.plan, global_batch
                    )
            if signal is not None and number + 1 < iterations:
                raise StoppedError(
                    f"{signal}: stopped after iteration {number + 1} of {iterations}, the checkpoint is written; "
                    "go on with --resume",
                    EXIT_CODE,
                )
        comm.close()
        data.close()
        plan = planner.plan or planner.make(record.profile())  # a run of one iteration

    summary = {
        "model": config.model,
        "world_size": world.size,
        "schedule": config.schedule,
        "buckets": len(plan.schedule.buckets),
        "iterations": iterations,
        "global_batch_size": global_batch,
        **record.measured(global_batch),
        "predicted_iteration_s": plan.iteration_s,
        "train_loss": record.train_loss,
        "val_accuracy": accuracy,
        "parameters_sha256": world.comm.allgather(network.arena.parameters_sha256()),
    }
    timeline = record.timeline()
    with world.together():
        if folder and timeline:
            folder.finish(plan, timeline, summary)
    reporter.end(summary, folder)
    return summary


def _drained(flight: InFlight, kind: Any, error: BaseException | None, trace: Any) -> bool:
    """All ranks leave alike: MPI must not be ended while their messages are on their way."""
    if isinstance(error, SharedError):
        flight.drain()
    return False


Item = tuple[int, int, Share, bool]
AHEAD = 2  # batches that are prepared while one is trained on


def _ahead(items: Iterator[Item], expect: Callable[[int, Share], None]) -> Iterator[Item]:
    """`items`, each announced by `expect(iteration, share)` AHEAD items before its turn."""
    waiting: deque[Item] = deque()
    for item in items:
        expect(item[0], item[2])
        waiting.append(item)
        if len(waiting) > AHEAD:
            yield waiting.popleft()
    yield from waiting


def _shares(config: Config, world: World, samples: int, global_batch: int, iterations: int) -> Iterator[Item]:
    """For each iteration of the run: (its number, epoch, this rank's share, whether the epoch ends with it)."""
    number = 0
    for epoch in range(config.epochs):
        left = ceil(samples / global_batch)
        for share in shares(samples, global_batch, world.rank, world.size, seed=config.seed, epoch=epoch):
            left -= 1
            number += 1
            yield number - 1, epoch, share, left == 0 or number == iterations
            if number == iterations:
                return
