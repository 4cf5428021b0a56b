"""Measure, plan, tell everyone: from profiled iterations and a measured all-reduce cost to the run's schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mgwfbp.comm import World, table_of
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


class Plan(NamedTuple):
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
    def iteration_s(self) -> float:
        """Predicted seconds of an iteration, updates included."""
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
) -> Plan:
    """The plan of `policy` for the profiled iterations `times` and the measured cost `all_reduce` (a NETWORK object).

    Collective. The schedule is made by rank 0 and broadcast, so that no rank's rounding can give it another one.
    """
    source = f"measured: median of {len(times)} iterations, maximum over {world.size} ranks"
    workload = workload_from_times(network.name, batch_size, network.arena, times, world.max, source)
    cost: Cost = AffineCost(0.0, 0.0) if all_reduce is None else table_of(all_reduce)
    schedule = None
    with world.together():
        if world.rank == 0:
            schedule = make_schedule(policy, workload, cost)
    agreed: Schedule = world.comm.bcast(schedule, root=0)
    return Plan(workload, all_reduce, agreed, predict(workload, agreed, cost), updates_s(world, times))


def updates_s(world: World, times: Sequence[IterationTimes]) -> float:
    """Seconds of all updates of an iteration: the median over `times`, the largest over the ranks. Collective."""
    return world.max([float(np.median([t.update_ns for t in times])) * 1e-9])[0]
