"""A plan: the schedule that a run follows, what it was made from, and what is expected of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from mgwfbp.errors import UserError
from mgwfbp.schedule.cost import AffineCost, Cost
from mgwfbp.schedule.network import Network
from mgwfbp.schedule.policies import make_schedule
from mgwfbp.schedule.predict import Prediction, predict
from mgwfbp.schedule.schedule import ALL_REDUCE, PIPELINED, SHARDED, Bucket, Schedule
from mgwfbp.schedule.workload import LayerProfile, Workload, workload_from_dict, workload_to_dict

NEEDS_ALL_SUMS = (
    "updates a layer before all sums are known, which --clip-norm and --on-nan skip need; use sharded, optimal or best"
)


@dataclass(frozen=True)
class Plan:
    """`schedule` for `workload` where a message takes `cost`; `network` is where that was measured, if it was.

    `update_s` is the measured time of all updates of an iteration together, on `ranks` ranks.
    """

    workload: Workload
    schedule: Schedule
    cost: Cost
    update_s: float = 0.0
    ranks: int = 1
    network: Network | None = None

    @cached_property
    def prediction(self) -> Prediction:
        """The timeline of one iteration, without updates (the paper's model)."""
        return predict(self.workload, self.schedule, self.cost)

    @cached_property
    def iteration_s(self) -> float:
        """Predicted seconds of an iteration, updates included.

        Each bucket's update waits for its message and for backward, and runs while later messages travel.
        """
        if self.schedule.mode == PIPELINED:  # updates are made in forward, each before its bucket's first layer
            return predict(_with_updates(self.workload, self.update_s), self.schedule, self.cost).iteration_s
        if self.schedule.mode == SHARDED:  # each rank updates its share, before the gathers
            return self.prediction.iteration_s + self.update_s / self.ranks
        end = self.workload.backward_s
        for message in self.prediction.messages:
            end = max(end, message.end_s) + self.update_s * message.nbytes / max(1, self.workload.nbytes)
        return self.workload.forward_s + end

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that a checkpoint holds, to go on by the same plan."""
        return {
            "workload": workload_to_dict(self.workload),
            "network": self.network.to_dict() if self.network else None,
            "policy": self.schedule.policy,
            "mode": self.schedule.mode,
            "buckets": [[bucket.first, bucket.last] for bucket in self.schedule.buckets],
            "update_s": self.update_s,
        }

    def report(self) -> dict[str, Any]:
        """The JSON object of a run's schedule.json: the buckets, and what is expected of them in seconds."""
        keys = ("iteration_s", "comm_end_s", "exposed_s", "overlap", "behind_backward_s", "behind_forward_s")
        predicted = {key: getattr(self.prediction, key) for key in keys}
        whole = self.to_dict()
        return {
            **{key: whole[key] for key in ("policy", "mode", "buckets")},
            "layers": [layer.name for layer in self.workload.layers],
            "predicted": {**predicted, "iteration_with_updates_s": self.iteration_s, "update_s": self.update_s},
        }


def plan_from_dict(value: dict[str, Any], where: str) -> Plan:
    """The plan in the object that `Plan.to_dict` made; `where` begins each error. Raises UserError."""
    workload = workload_from_dict(value["workload"], where)
    buckets = tuple(Bucket(first, last) for first, last in value["buckets"])
    schedule = Schedule(value["policy"], buckets, value.get("mode", ALL_REDUCE))
    schedule.check(len(workload.layers))
    network = Network.from_dict(value["network"]) if value["network"] else None
    return plan_for(workload, schedule, network, value["update_s"])


def plan_for(workload: Workload, schedule: Schedule, network: Network | None, update_s: float = 0.0) -> Plan:
    """The plan of a run: on the measured `network`, or on one rank, where messages cost nothing (None)."""
    cost: Cost = network.cost if network else AffineCost(0.0, 0.0)
    return Plan(workload, schedule, cost, update_s, network.ranks if network else 1, network)


def plan(workload: Workload, cost: Cost, schedule: str | Schedule = "optimal") -> Plan:
    """What `schedule`, one or the policy of that name, does with `workload` where a message takes `cost`, on paper.

    Raises UserError for an unknown name, and for a schedule that does not cover the layers.
    """
    if isinstance(schedule, Schedule):
        schedule.check(len(workload.layers))
        return Plan(workload, schedule, cost)
    return Plan(workload, make_schedule(schedule, workload, cost), cost)


def untimed(policy: str, layers: Sequence[tuple[str, int, int]]) -> Schedule:
    """The schedule of `policy` for `layers` (name, parameters, bytes) whose times nobody knows.

    Raises UserError for an unknown policy, and for one that plans by times.
    """
    if policy in ("mgwfbp", "optimal", "pipelined", "sharded", "best"):
        raise UserError(f"schedule {policy} needs measured times; take a plan's (plan(…).schedule), or wfbp")
    workload = Workload("untimed", 1, 0.0, tuple(LayerProfile(*layer, 0.0) for layer in layers))
    return make_schedule(policy, workload, AffineCost(0.0, 0.0))


def _with_updates(workload: Workload, update_s: float) -> Workload:
    """`workload` with the updates, by their bytes, in its forward times."""
    left = workload.forward_left_s()
    layers = []
    for place, layer in enumerate(workload.layers):
        own = left[place] - (left[place - 1] if place else 0.0)
        layers.append(replace(layer, forward_s=own + update_s * layer.nbytes / max(1, workload.nbytes)))
    return replace(workload, forward_s=workload.forward_s + update_s, layers=tuple(layers))
