"""Measure, plan, tell everyone: from profiled iterations and a measured all-reduce cost to the run's schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mgwfbp.comm import World, table_of
from mgwfbp.errors import UserError
from mgwfbp.measure.profiler import IterationTimes, workload_from_times
from mgwfbp.network import Network
from mgwfbp.schedule import (
    AffineCost,
    Cost,
    Prediction,
    Schedule,
    Workload,
    make_schedule,
    predict,
)
from mgwfbp.schedule.workload import ALL_REDUCE, PIPELINED, SHARDED
from mgwfbp.training.config import NEEDS_ALL_SUMS


@dataclass(frozen=True)
class Plan:
    """What the run follows, and what is expected of it. `network` is the measured NETWORK object (None for one rank).

    `iteration_s` adds the updates to the prediction: each bucket's update waits for its message and for backward, and
    runs while later messages travel. `update_s` is the measured time of all updates together.
    """

    workload: Workload
    network: dict[str, Any] | None
    schedule: Schedule
    prediction: Prediction
    update_s: float

    @property
    def cost(self) -> Cost:
        """What a message costs; nothing on one rank."""
        return AffineCost(0.0, 0.0) if self.network is None else table_of(self.network)

    @cached_property
    def iteration_s(self) -> float:
        """Predicted seconds of an iteration, updates included."""
        if self.schedule.mode == PIPELINED:  # updates are made in forward, each before its bucket's first layer
            return predict(_with_updates(self.workload, self.update_s), self.schedule, self.cost).iteration_s
        if self.schedule.mode == SHARDED:  # each rank updates its share, before the gathers
            return self.prediction.iteration_s + self.update_s / (self.network["ranks"] if self.network else 1)
        end = self.workload.backward_s
        for message in self.prediction.messages:
            end = max(end, message.end_s) + self.update_s * message.nbytes / max(1, self.workload.nbytes)
        return self.workload.forward_s + end


def make_plan(
    world: World,
    policy: str,
    network: Network,
    batch_size: int,
    times: Sequence[IterationTimes],
    all_reduce: dict[str, Any] | None,
    modes: tuple[str, ...] = (ALL_REDUCE, PIPELINED, SHARDED),
    shared_updates: bool = False,
) -> Plan:
    """The plan of `policy` for the profiled iterations `times` and the measured cost `all_reduce` (a NETWORK object).

    Collective. The schedule is made by rank 0 and broadcast, so that no rank's rounding can give it another one.
    Raises UserError if its mode is not one of `modes`, those that the run permits. With `shared_updates` each rank made
    its share of the updates only in those iterations.
    """
    source = f"measured: median of {len(times)} iterations, maximum over {world.size} ranks"
    workload = workload_from_times(network.name, batch_size, network.arena, times, world.max, source)
    cost: Cost = AffineCost(0.0, 0.0) if all_reduce is None else table_of(all_reduce)
    schedule = None
    with world.together():
        if world.rank == 0:
            schedule = make_schedule(policy, workload, cost, modes)
            if schedule.mode not in modes:
                raise UserError(f"--schedule {policy}: {NEEDS_ALL_SUMS}")
    agreed: Schedule = world.comm.bcast(schedule, root=0)
    update_s = updates_s(world, times) * (world.size if shared_updates else 1)
    return Plan(workload, all_reduce, agreed, predict(workload, agreed, cost), update_s)


def _with_updates(workload: Workload, update_s: float) -> Workload:
    """`workload` with the updates, by their bytes, in its forward times."""
    left = workload.forward_left_s()
    layers = []
    for place, layer in enumerate(workload.layers):
        own = left[place] - (left[place - 1] if place else 0.0)
        layers.append(replace(layer, forward_s=own + update_s * layer.nbytes / max(1, workload.nbytes)))
    return replace(workload, forward_s=workload.forward_s + update_s, layers=tuple(layers))


def updates_s(world: World, times: Sequence[IterationTimes]) -> float:
    """Seconds of all updates of an iteration: the median over `times`, the largest over the ranks. Collective."""
    return world.max([float(np.median([t.update_ns for t in times])) * 1e-9])[0]
