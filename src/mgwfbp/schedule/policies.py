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

from mgwfbp.errors import UserError, check_free, unknown_name
from mgwfbp.fields import bytes_from_text
from mgwfbp.schedule.bound import lower_bound_s
from mgwfbp.schedule.cost import Cost, startup_s
from mgwfbp.schedule.next_forward import pipelined, sharded
from mgwfbp.schedule.optimal import optimal
from mgwfbp.schedule.predict import predict
from mgwfbp.schedule.schedule import ALL_REDUCE, PIPELINED, SHARDED, Schedule, schedule_from_cuts, unmerged
from mgwfbp.schedule.workload import Workload

Policy = Callable[[Workload, Cost], Schedule]

POLICIES: dict[str, Policy] = {}
TIE = 1e-9  # times that differ by less are equal
SIZED = ("bucket:25MiB", "dear:25MB")  # examples of those with a size in their name
FEWEST_BYTES = 256  # below it a size without a unit is a mistake: 25 is what other frameworks call 25 MiB
KINDS = ("bucket", "dear")  # theirs; `find_policy` never asks the registry for these


def policy(name: str) -> Callable[[Policy], Policy]:
    """Decorator that registers a policy under `name`. Raises UserError if another one has that name."""

    def register(function: Policy) -> Policy:
        check_free("policy", name, function, {**dict.fromkeys(KINDS), **POLICIES})
        POLICIES[name] = function
        return function

    return register


def compared() -> list[str]:
    """The names of all policies to compare: the registry's but `best`, which is one of the others, and fixed sizes."""
    return [*(name for name in POLICIES if name != "best"), *SIZED]


def make_schedule(
    name: str, workload: Workload, cost: Cost, modes: tuple[str, ...] = (ALL_REDUCE, PIPELINED, SHARDED)
) -> Schedule:
    """The schedule of the policy called `name`, checked to cover every layer once. Raises UserError.

    `best` takes the cheapest whose mode is one of `modes`.
    """
    schedule = cheapest(workload, cost, modes) if name == "best" else find_policy(name)(workload, cost)
    if not isinstance(schedule, Schedule):
        raise UserError(f"policy {name} returned a {type(schedule).__name__}, it must return a Schedule")
    schedule.check(len(workload.layers))
    return schedule


def find_policy(name: str) -> Policy:
    """The policy called `name`: one of the registry's, `bucket:SIZE` or `dear:SIZE`.

    Raises UserError with the nearest name.
    """
    kind, _, text = name.partition(":")
    if kind in KINDS:
        if not text:
            raise UserError(f"schedule {name!r}: it needs a size, as in {kind}:25MB")
        size = bytes_from_text(text, f"schedule {name!r}")
        if text.isdecimal() and size < FEWEST_BYTES:
            raise UserError(f"schedule {name!r}: are {size} bytes meant ({kind}:{size}B), or {kind}:{size}MiB?")
        return lambda workload, cost: fixed_size(workload, size, name, SHARDED if kind == "dear" else ALL_REDUCE)
    if name not in POLICIES:
        raise unknown_name("schedule", name, [*POLICIES, *SIZED])
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
policy("pipelined")(pipelined)
policy("sharded")(sharded)


@policy("best")
def best(workload: Workload, cost: Cost) -> Schedule:
    """The cheapest of all policies in the registry."""
    return cheapest(workload, cost, (ALL_REDUCE, PIPELINED, SHARDED))


def cheapest(workload: Workload, cost: Cost, modes: tuple[str, ...]) -> Schedule:
    """The schedule of the registry with the smallest predicted iteration time, of those whose mode is in `modes`.

    Of equal ones the first; `optimal` comes before all that runs into the next forward, and needs no more of a run.
    """
    found, found_s, bound_s = None, 0.0, lower_bound_s(workload, cost)
    for name in ["optimal", *(name for name in POLICIES if name not in ("optimal", "best"))]:
        schedule = make_schedule(name, workload, cost)
        seconds = predict(workload, schedule, cost).iteration_s
        if schedule.mode in modes and (found is None or seconds < found_s * (1 - TIE)):
            found, found_s = schedule, seconds
            if found_s <= bound_s * (1 + TIE):
                break  # no other can be better
    assert found is not None
    return found


def fixed_size(workload: Workload, nbytes: int, name: str = "bucket", mode: str = ALL_REDUCE) -> Schedule:
    """Buckets of a fixed size, cut as PyTorch DDP does: a bucket closes with the layer that brings it to `nbytes`.

    `dear:SIZE` sends them as DeAR does (Zhang et al. 2023): reduce-scatter, and all-gather during the next forward.
    """
    starts, filled = [0], 0
    for layer, profile in enumerate(workload.layers):
        filled += profile.nbytes
        if filled >= nbytes and layer + 1 < len(workload.layers):
            starts.append(layer + 1)
            filled = 0
    return schedule_from_cuts(name, starts, len(workload.layers), mode)
