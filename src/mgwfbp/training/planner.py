"""Which schedule the next iteration follows: unmerged while it is profiled, then the plan's, or a new plan's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mgwfbp.comm import Transport, World, measure_again
from mgwfbp.measure.profiler import IterationTimes
from mgwfbp.network import Network
from mgwfbp.schedule import Schedule, unmerged
from mgwfbp.schedule.workload import ALL_REDUCE, PIPELINED, SHARDED
from mgwfbp.training.config import Config
from mgwfbp.training.drift import Drift
from mgwfbp.training.planning import Plan, make_plan
from mgwfbp.training.record import Record
from mgwfbp.training.report import Reporter


class Planner:
    """Plans for one run. `all_reduce` is the NETWORK object of `transport` (both None for one rank).

    `plan` is None until iteration `profile_until`, and may be given, by a run that is resumed. `drain` waits for the
    messages that the iteration before left behind.
    """

    def __init__(
        self,
        config: Config,
        world: World,
        network: Network,
        batch_size: int,
        transport: Transport | None,
        all_reduce: dict[str, Any] | None,
        reporter: Reporter,
        profile_until: int,
        plan: Plan | None,
        drain: Callable[[], None],
    ) -> None:
        self.config, self.world, self.network, self.batch_size = config, world, network, batch_size
        self.transport, self.all_reduce, self.reporter = transport, all_reduce, reporter
        self.profile_until, self.plan = profile_until, plan
        self.drift, self.drain = Drift(world, config.replan), drain
        self.modes = (ALL_REDUCE, SHARDED) if config.needs_all_sums else (ALL_REDUCE, PIPELINED, SHARDED)

    def schedule(self, number: int, record: Record) -> Schedule:
        """The schedule of iteration `number`. Collective where it measures or plans."""
        if self.plan is None and number >= self.profile_until:
            self.make(record.profile())
        elif self.plan is not None and self.drift.plan_again(self.plan.iteration_s):
            self.drain()
            if self.transport is not None:
                nbytes = self.network.arena.gradients.nbytes
                self.all_reduce = measure_again(self.world, self.transport, nbytes, self.config.may_shard)
            self.reporter.drift(number, self.drift.measured_s, self.plan, self.all_reduce)
            self.make(list(self.drift.recent))
            record.planned_again()
        return self.plan.schedule if self.plan else unmerged(len(self.network.learnable))

    def add(self, times: IterationTimes) -> None:
        """A full iteration is over."""
        if self.plan:
            self.drift.add(times)

    def make(self, times: list[IterationTimes]) -> Plan:
        """Plan for the profiled iterations `times`, and say so. Collective."""
        self.plan = make_plan(
            self.world,
            self.config.schedule,
            self.network,
            self.batch_size,
            times,
            self.all_reduce,
            self.modes,
            shared_updates=self.plan is not None and self.plan.schedule.mode == SHARDED,
        )
        self.reporter.plan(self.plan)
        self.drift.planned()
        return self.plan
