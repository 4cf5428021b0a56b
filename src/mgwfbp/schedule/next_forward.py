"""Schedules whose messages also hide behind the next iteration's forward (docs/next-forward.md).

A gradient is not needed before the next forward of its own layer. Number the layers 0..L−1 in gradient-ready order; r_i
is the time from the start of backward at which gradient i is ready, q_i the forward time of the layers 0..i, which is
left once layer i may start its next forward. If bucket b ends at e_b and its first layer in forward order is l_b (the
last one in gradient-ready order), backward and forward together take

    P = max( B + F,  max over b of  e_b + q_{l_b} ).

`pipelined` reorders plain all-reduces, `sharded` splits each into reduce-scatter and all-gather.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mgwfbp.schedule.bound import lower_bound_s
from mgwfbp.schedule.cost import Cost, halves, message_times
from mgwfbp.schedule.optimal import optimal
from mgwfbp.schedule.predict import predict
from mgwfbp.schedule.schedule import PIPELINED, SHARDED, Bucket, Schedule, schedule_from_cuts
from mgwfbp.schedule.workload import Workload

MOST_LAYERS = 2000  # beyond, `optimal` is returned: the tables of the programmes have L² entries
TOLERANCE = 1e-12
AT_ONCE = 64  # start times that are tried together
MOST_LABELS = 2000
BLOCK = 128


def pipelined(workload: Workload, cost: Cost) -> Schedule:
    """All-reduces in the best order of this form, for some d ≤ p: never worse than `optimal`, which it falls back to.

    First groups of the layers [0, d) as they become ready; then groups of [p, L), the layers next to the input, which
    the next forward needs first, before the older [d, p); then those, in forward order, during the next forward.

    With E(s, j | gates, x) the earliest end of the layers [s, j) on a channel that is free at x, by the programme of
    `optimal`: f = E(0, d | r, 0), t = E(p, L | r, f), and, since forward read backwards in time is a backward,
    h = E(d, p | q, 0). P = max(B + F, t + max(h, q_{L−1})). The smallest over d ≤ p is found by looking at the pairs in
    the order of a lower bound, t ≥ max(E(p, L | r, 0), f + the time of the messages of [p, L)), until none that is left
    can be better.
    """
    safe = optimal(workload, cost)
    fallback = Schedule("pipelined", safe.buckets)
    if len(workload.layers) > MOST_LAYERS:
        return fallback
    floor = lower_bound_s(workload, cost) * (1 + TOLERANCE)
    best, place = predict(workload, safe, cost).iteration_s * (1 - TOLERANCE), None
    if best <= floor:
        return fallback
    ready, left = np.array(workload.ready_s()), np.array(workload.forward_left_s())
    takes = message_times(cost, workload.prefix_nbytes())
    layers, alone = len(ready), ready[-1] + workload.forward_s
    ends, mirrored = _ends(ready, takes), _ends(left, takes)
    bare = _cheapest_rest(takes)
    prefix_end = ends[0]  # f
    bounds = np.maximum(ends[:, -1], prefix_end[:, None] + bare)  # t of (d, p), at least
    bounds[:, layers] = np.maximum(prefix_end, ready[-1])
    after = np.maximum(mirrored, left[-1])
    bounds = np.maximum(alone, bounds + after)
    bounds[np.tril_indices(layers + 1, -1)] = np.inf  # d ≤ p
    while best > floor:
        p = int(bounds.min(axis=0).argmin())
        order = bounds[:, p].argsort(kind="stable")[:AT_ONCE]
        starts = order[bounds[order, p] < best]
        if not len(starts):
            break
        exact = np.maximum(alone, _segment_end(ready, takes, p, prefix_end[starts]) + after[starts, p])
        bounds[starts, p] = np.inf
        if exact.min() < best:
            best, place = float(exact.min()), (int(starts[exact.argmin()]), p)
    if place is None:
        return fallback
    d, p = place
    first = _cuts(ready, takes, 0, d, 0.0)
    then = _cuts(ready, takes, p, layers, float(prefix_end[d]))
    last = _cuts(left, takes, d, p, 0.0)[::-1]
    return _merged(workload, cost, Schedule("pipelined", (*first, *then, *last), PIPELINED))


def sharded(workload: Workload, cost: Cost) -> Schedule:
    """Reduce-scatter behind backward, all-gather of parameters behind the next forward, with equal cuts.

    All reduce-scatters end at f, then the all-gathers take g from there to the end of forward: P = f + g. A prefix of j
    layers with given cuts has an f, by the programme of `optimal` on r and the cost of a reduce-scatter, and a g, by it
    on q and the cost of an all-gather (time reversed). Neither finishing a prefix earlier in f nor in g ever hurts, so
    the pairs (f, g) that no other pair of the same prefix undercuts in both are enough. Of those, the ones are dropped
    that cannot undercut the best schedule known, by lower bounds on what the other layers add to f and to g.
    """
    scatter, gather = halves(cost)
    layers = len(workload.layers)
    ready, left = np.array(workload.ready_s()), np.array(workload.forward_left_s())
    if layers > MOST_LAYERS:
        return Schedule("sharded", optimal(workload, cost).buckets, SHARDED)
    scatters, gathers = (message_times(part, workload.prefix_nbytes()) for part in (scatter, gather))
    f_ends, g_ends, f_bare, g_bare = (
        _ends(ready, scatters),
        _ends(left, gathers),
        *map(_cheapest_rest, (scatters, gathers)),
    )
    known = [_cuts(ready, scatters, 0, layers, 0.0), _cuts(left, gathers, 0, layers, 0.0), [Bucket(0, layers - 1)]]
    schedules = [Schedule("sharded", tuple(buckets), SHARDED) for buckets in known]
    best = min(schedules, key=lambda schedule: predict(workload, schedule, cost).iteration_s)
    limit = predict(workload, best, cost).iteration_s * (1 - TOLERANCE)
    if limit <= lower_bound_s(workload, cost) * (1 + TOLERANCE):
        return _merged(workload, cost, best)
    # Labels of all prefixes: f, g, the prefix, and the label that it was made from.
    f, g, prefix, before = np.zeros(1), np.zeros(1), np.zeros(1, int), np.zeros(1, int)
    for j in range(1, layers + 1):
        new_f = np.maximum(f, ready[j - 1]) + scatters[prefix, j]
        new_g = np.maximum(g, left[j - 1]) + gathers[prefix, j]
        end_f, end_g = np.maximum(new_f + f_bare[j], f_ends[j, -1]), np.maximum(new_g + g_bare[j], g_ends[j, -1])
        # A prefix that is all of them has nothing to add; its own f and g are the ends.
        useful = np.flatnonzero((end_f if j < layers else new_f) + (end_g if j < layers else new_g) < limit)
        order = useful[np.lexsort((new_g[useful], new_f[useful]))]
        lowest = np.minimum.accumulate(new_g[order])
        front = order[np.concatenate([[True], new_g[order][1:] < lowest[:-1]])] if len(order) else order
        if len(front) > MOST_LABELS:  # never seen on a net; then the schedule is near the best one, not the best
            front = front[np.linspace(0, len(front) - 1, MOST_LABELS).astype(int)]
        f, g = np.concatenate([f, new_f[front]]), np.concatenate([g, new_g[front]])
        prefix = np.concatenate([prefix, np.full(len(front), j)])
        before = np.concatenate([before, front])
    whole = np.flatnonzero(prefix == layers)
    if len(whole):
        label, starts = int(whole[(f + g)[whole].argmin()]), []
        while prefix[label]:
            label = int(before[label])
            starts.append(int(prefix[label]))
        best = schedule_from_cuts("sharded", starts[::-1], layers, SHARDED)
    return _merged(workload, cost, best)


def _ends(gates: np.ndarray, takes: np.ndarray) -> np.ndarray:
    """[s, j] is the earliest end of the layers [s, j) on a channel that is free at 0; layer i is ready at gates[i]."""
    count = len(takes)
    ends = np.full((count, count), np.inf)
    np.fill_diagonal(ends, 0.0)
    into, memory = np.ascontiguousarray(takes.T), np.empty(count * count)
    for j in range(1, count):
        # Row s needs the columns from s on: the blocks leave out half of what does not exist.
        for first in range(0, j, BLOCK):
            last = min(first + BLOCK, j)
            part = memory[: (last - first) * (j - first)].reshape(last - first, j - first)
            np.maximum(ends[first:last, first:j], gates[j - 1], out=part)
            part += into[j, first:j]
            part.min(axis=1, out=ends[first:last, j])
    return ends


def _cheapest_rest(takes: np.ndarray) -> np.ndarray:
    """[p] is the least time that the messages of the layers [p, L) take together, were they all ready."""
    count = len(takes)
    rest = np.zeros(count)
    for p in reversed(range(count - 1)):
        rest[p] = (takes[p, p + 1 :] + rest[p + 1 :]).min()
    return rest


def _segment_end(gates: np.ndarray, takes: np.ndarray, first: int, starts: np.ndarray) -> np.ndarray:
    """For each of `starts` the earliest end of the layers [first, L) on a channel that is free from then on."""
    count = len(takes)
    if first == count - 1:
        return np.maximum(starts, gates[-1])
    ends = np.full((len(starts), count - first), np.inf)
    ends[:, 0] = starts
    for j in range(first + 1, count):
        ends[:, j - first] = (np.maximum(ends[:, : j - first], gates[j - 1]) + takes[first:j, j]).min(axis=1)
    return ends[:, -1]


def _cuts(gates: np.ndarray, takes: np.ndarray, first: int, last: int, start: float) -> list[Bucket]:
    """The buckets of the layers [first, last) that end earliest on a channel that is free from `start` on."""
    ends, before = [start], [first]
    for j in range(first + 1, last + 1):
        all_ends = np.maximum(ends, gates[j - 1]) + takes[first:j, j]
        before.append(first + int(all_ends.argmin()))
        ends.append(float(all_ends.min()))
    buckets = []
    while last > first:
        buckets.append(Bucket(before[last - first], last - 1))
        last = before[last - first]
    return buckets[::-1]


def _merged(workload: Workload, cost: Cost, schedule: Schedule) -> Schedule:
    """`schedule` with neighbours merged where that costs no time: a message that is hidden still costs the CPU."""
    spend = _pipelined_s if schedule.mode == PIPELINED else _sharded_s
    price = spend(workload, cost)
    buckets = list(schedule.buckets)
    latest = price(buckets) * (1 + TOLERANCE)
    place = 0
    while place + 1 < len(buckets):
        one, other = buckets[place], buckets[place + 1]
        merged = Bucket(min(one.first, other.first), max(one.last, other.last))
        trial = [*buckets[:place], merged, *buckets[place + 2 :]]
        if (one.last + 1 == other.first or other.last + 1 == one.first) and price(trial) <= latest:
            buckets = trial
        else:
            place += 1
    return Schedule(schedule.policy, tuple(buckets), schedule.mode)


def _pipelined_s(workload: Workload, cost: Cost) -> Callable[[list[Bucket]], float]:
    """The time P of buckets in send order, as `predict` has it, without the timeline."""
    ready, left, prefix = workload.ready_s(), workload.forward_left_s(), workload.prefix_nbytes()

    def price(buckets: list[Bucket]) -> float:
        free, worst = 0.0, ready[-1] + workload.forward_s
        for bucket in buckets:
            free = max(free, ready[bucket.last]) + float(cost(float(prefix[bucket.last + 1] - prefix[bucket.first])))
            worst = max(worst, free + left[bucket.last])
        return worst

    return price


def _sharded_s(workload: Workload, cost: Cost) -> Callable[[list[Bucket]], float]:
    """The same of sharded buckets."""
    ready, left, prefix = workload.ready_s(), workload.forward_left_s(), workload.prefix_nbytes()
    scatter, gather = halves(cost)

    def price(buckets: list[Bucket]) -> float:
        free = 0.0
        sizes = [float(prefix[bucket.last + 1] - prefix[bucket.first]) for bucket in buckets]
        for bucket, nbytes in zip(buckets, sizes, strict=True):
            free = max(free, ready[bucket.last]) + float(scatter(nbytes))
        free, worst = max(free, ready[-1]), ready[-1] + workload.forward_s
        for bucket, nbytes in zip(reversed(buckets), reversed(sizes), strict=True):
            free += float(gather(nbytes))
            worst = max(worst, free + left[bucket.last])
        return worst

    return price
