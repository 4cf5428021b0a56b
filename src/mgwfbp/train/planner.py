"""Which schedule does the next iteration follow? Unmerged while it is profiled, then the plan's, or a new plan's.

Measure, plan, tell everyone; then look whether iterations still take as long as the plan says. If they do not for a
while, all ranks measure and plan again, together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from mgwfbp.comm import Transport, World, measure_again
from mgwfbp.errors import UserError
from mgwfbp.net import Net
from mgwfbp.schedule import (
    NEEDS_ALL_SUMS,
    SHARDED,
    AffineCost,
    Cost,
    IterationTimes,
    Network,
    Plan,
    Schedule,
    Watch,
    make_schedule,
    plan_for,
    unmerged,
    workload_from_times,
)


class Drift(NamedTuple):
    """Why a run is planned again after `iteration` iterations: seconds of one, measured and predicted; the network."""

    iteration: int
    measured_s: float
    predicted_s: float
    network: Network | None


class Planner:
    """Plans for one run by the policy called `policy`, whose schedules may have the `modes` given.

    `network` is what `transport` costs (both None on one rank); with `may_shard` its halves are measured, too. `plan`
    is None until iteration `profile_until`; a run that is resumed may set it. `settle()` waits for what the iteration
    before left on its way; `told(plan, drift)` hears of every plan. `replan` is auto, never or a number of iterations.
    """

    def __init__(
        self,
        world: World,
        net: Net,
        policy: str,
        modes: tuple[str, ...],
        global_batch: int,
        transport: Transport | None,
        network: Network | None,
        *,
        may_shard: bool,
        replan: str,
        settle: Callable[[], None],
        told: Callable[[Plan, Drift | None], None],
    ) -> None:
        self.world, self.net, self.policy, self.modes, self.global_batch = world, net, policy, modes, global_batch
        self.transport, self.network, self.may_shard = transport, network, may_shard
        alone = world.size == 1 and replan == "auto"  # nothing is sent, so nothing could be planned better
        self.settle, self.told, self.watch = settle, told, Watch(world.max, "never" if alone else replan)
        self.plan: Plan | None = None
        self.profile_until = 1
        self.profiled: list[IterationTimes] = []
        self._short: list[IterationTimes] = []  # the last short batch, for runs that have nothing else

    def schedule(self, number: int) -> Schedule:
        """The schedule of iteration `number`. Collective where it measures or plans."""
        if self.plan is None and number >= self.profile_until:
            self.make()
        elif self.plan is not None and self.watch.plan_again(self.plan.iteration_s):
            self.settle()
            if self.transport is not None:
                nbytes = self.net.arena.gradients.nbytes
                self.network = measure_again(self.world, self.transport, nbytes, self.may_shard)
            drift = Drift(number, self.watch.measured_s, self.plan.iteration_s, self.network)
            self._plan(list(self.watch.recent), drift)
        return self.plan.schedule if self.plan else unmerged(len(self.net.learnable))

    def saw(self, times: IterationTimes, samples: int) -> None:
        """An iteration of `samples` samples is over. Only full batches count: a short last one would spoil medians."""
        if samples != self.global_batch:
            self._short = [times]
        elif self.plan is None:
            self.profiled.append(times)
        else:
            self.watch.add(times)

    def make(self) -> Plan:
        """Plan by the profiled iterations without the first, which touches all memory anew. Collective."""
        return self._plan(self.profiled[1:] or self.profiled or self._short, None)

    def _plan(self, times: Sequence[IterationTimes], drift: Drift | None) -> Plan:
        source = f"measured: median of {len(times)} iterations, maximum over {self.world.size} ranks"
        batch_size, layers = self.global_batch // self.world.size, self.net.arena.layers
        workload = workload_from_times(self.net.name, batch_size, layers, times, self.world.max, source)
        cost: Cost = self.network.cost if self.network else AffineCost(0.0, 0.0)
        schedule = None
        with self.world.together():  # made by rank 0, so that no rank's rounding can give it another one
            if self.world.rank == 0:
                schedule = make_schedule(self.policy, workload, cost, self.modes)
                if schedule.mode not in self.modes:
                    raise UserError(f"--schedule {self.policy}: {NEEDS_ALL_SUMS}")
        agreed: Schedule = self.world.comm.bcast(schedule, root=0)
        # Under a sharded schedule each rank made its share of the updates only.
        shares = self.world.size if self.plan is not None and self.plan.schedule.mode == SHARDED else 1
        self.plan = plan_for(workload, agreed, self.network, updates_s(self.world, times) * shares)
        self.told(self.plan, drift)
        self.watch.planned()
        return self.plan


def updates_s(world: World, times: Sequence[IterationTimes]) -> float:
    """Seconds of all updates of an iteration: the median over `times`, the largest over the ranks. Collective."""
    return world.max([float(np.median([t.update_ns for t in times])) * 1e-9])[0]
