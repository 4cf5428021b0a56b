"""Policies: from a workload and an all-reduce cost to a schedule.

A policy of your own is one decorated function; it then works in every command that takes `--schedule`:

    from mgwfbp.schedule import Schedule, policy, schedule_from_cuts

    @policy("halves")
    def halves(workload, cost):
        middle = len(workload.layers) // 2
        return schedule_from_cuts("halves", [0, middle] if middle else [0], len(workload.layers))
"""

from __future__ import annotations

from collections.abc import Callable

from mgwfbp.errors import UserError, unknown_name
from mgwfbp.fields import bytes_from_text
from mgwfbp.schedule.cost import Cost, startup_s
from mgwfbp.schedule.optimal import optimal
from mgwfbp.schedule.workload import Schedule, Workload, schedule_from_cuts, unmerged

Policy = Callable[[Workload, Cost], Schedule]

POLICIES: dict[str, Policy] = {}


def policy(name: str) -> Callable[[Policy], Policy]:
    """Decorator that registers a policy under `name`."""

    def register(function: Policy) -> Policy:
        POLICIES[name] = function
        return function

    return register


def make_schedule(name: str, workload: Workload, cost: Cost) -> Schedule:
    """The schedule of the policy called `name`, checked to cover every layer once. Raises UserError."""
    schedule = find_policy(name)(workload, cost)
    if not isinstance(schedule, Schedule):
        raise UserError(f"policy {name} returned a {type(schedule).__name__}, it must return a Schedule")
    schedule.check(len(workload.layers))
    return schedule


def find_policy(name: str) -> Policy:
    """The policy called `name`: one of the registry's, or `bucket:SIZE`. Raises UserError with the nearest name."""
    if name.split(":")[0] == "bucket":
        size = bytes_from_text(name.partition(":")[2], f"schedule {name!r}")
        return lambda workload, cost: fixed_size(workload, size, name)
    if name not in POLICIES:
        raise unknown_name("schedule", name, [*POLICIES, "bucket:25MiB"])
    return POLICIES[name]


@policy("wfbp")
def wfbp(workload: Workload, cost: Cost) -> Schedule:
    """Wait-free back-propagation: one message a layer, sent as soon as its gradient is ready."""
    return unmerged(len(workload.layers))


@policy("single")
def single(workload: Workload, cost: Cost) -> Schedule:
    """SyncEASGD's single layer: one message with all gradients after the whole backward pass."""
    return schedule_from_cuts("single", [0], len(workload.layers))


@policy("mgwfbp")
def mgwfbp(workload: Workload, cost: Cost) -> Schedule:
    """The paper's Algorithm 1 (INFOCOM 2019): merge a layer into the next iff that one is ready within a start-up time.

    In its notation: merge l into l−1 iff τb(l−1) + tb(l−1) − τc(l) < a. The paper recomputes all τc after each merge,
    O(L²); going through the layers in gradient-ready order, only the open bucket's start is needed, so this is O(L).
    """
    ready, a = workload.ready_s(), startup_s(cost)
    starts, channel_free, nbytes = [0], 0.0, 0
    for layer, profile in enumerate(workload.layers):
        nbytes += profile.nbytes
        start = max(channel_free, ready[layer])  # τc of the open bucket, if it ended here
        last = layer == len(ready) - 1
        if not last and ready[layer + 1] - start >= a:
            channel_free = start + float(cost(float(nbytes)))
            starts.append(layer + 1)
            nbytes = 0
    return schedule_from_cuts("mgwfbp", starts, len(ready))


policy("optimal")(optimal)


def fixed_size(workload: Workload, nbytes: int, name: str = "bucket") -> Schedule:
    """Buckets of a fixed size, cut as PyTorch DDP does: a bucket closes with the layer that brings it to `nbytes`."""
    starts, filled = [0], 0
    for layer, profile in enumerate(workload.layers):
        filled += profile.nbytes
        if filled >= nbytes and layer + 1 < len(workload.layers):
            starts.append(layer + 1)
            filled = 0
    return schedule_from_cuts(name, starts, len(workload.layers))
