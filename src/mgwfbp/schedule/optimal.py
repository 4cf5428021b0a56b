"""The exactly optimal schedule: a dynamic programme over cut points.

In gradient-ready order let r(j) be the time layer j's gradient is ready (layers 0..L−1) and S(j) the bytes of the
first j layers. One channel sends the buckets in order, so if a prefix of j layers is to end with the bucket i..j−1,
that bucket starts when the prefix i is sent and layer j−1 is ready:

    f(j) = min over i < j of  max(f(i), r(j−1)) + t(S(j) − S(i)),      f(0) = 0.

It is exact for every monotone cost t, because finishing a prefix earlier never delays what follows.
The paper's Algorithm 1 decides greedily, layer by layer, and can miss this optimum (docs/architecture.md).

Where all but the last messages hide behind backward, many schedules end at that same time. Of those the one with the
fewest buckets is taken: a message that is hidden still costs the processor something, which t does not know.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from mgwfbp.schedule.cost import AffineCost, Cost, costs, message_times
from mgwfbp.schedule.schedule import Schedule, schedule_from_cuts
from mgwfbp.schedule.workload import Workload

MOST_BUCKETS, MOST_LAYERS = 32, 2000
TOLERANCE = 1e-13  # of the end: rounding, no more


def optimal(workload: Workload, cost: Cost) -> Schedule:
    """The schedule with the smallest iteration time for a monotone `cost`, and of those the one with fewest buckets.

    O(L) for the time if the cost is affine, else O(L²); O(L²) for each bucket of the result, up to MOST_BUCKETS buckets
    and MOST_LAYERS layers; beyond, the first schedule found with that time is returned.
    """
    ready, prefix = workload.ready_s(), workload.prefix_nbytes()
    if isinstance(cost, AffineCost):
        before, end_s = _affine(ready, prefix, cost.a, cost.b)
    else:
        before, end_s = _any_cost(ready, prefix, cost)
    starts, end = [], len(ready)
    while end > 0:
        end = before[end]
        starts.append(end)
    found = starts[::-1]
    if len(found) > 1 and len(ready) <= MOST_LAYERS:
        latest = max(end_s, ready[-1]) * (1 + TOLERANCE)
        found = _fewest(ready, prefix, cost, latest, min(len(found) - 1, MOST_BUCKETS)) or found
    return schedule_from_cuts("optimal", found, len(ready))


def _fewest(ready: list[float], prefix: list[int], cost: Cost, latest: float, most: int) -> list[int] | None:
    """The starts of the fewest buckets, at most `most`, that end by `latest`; None if there are none so few.

    With k buckets the first j layers end at f_k(j) = min over i < j of max(f_{k−1}(i), r(j−1)) + t(S(j) − S(i)).
    """
    layers, takes = len(ready), message_times(cost, prefix)
    begins = np.array([0.0, *ready])
    finish = np.full(layers + 1, np.inf)
    finish[0] = 0.0
    chosen: list[np.ndarray] = []
    for _ in range(most):
        ends = np.maximum(finish[:, None], begins) + takes
        chosen.append(ends.argmin(axis=0))
        finish = ends.min(axis=0)
        if finish[-1] <= latest:
            starts, end = [], layers
            for before in reversed(chosen):
                end = int(before[end])
                starts.append(end)
            return starts[::-1]
    return None


def _any_cost(ready: list[float], prefix: list[int], cost: Cost) -> tuple[list[int], float]:
    """The DP as it stands. Returns (before[j], where the last bucket of the best schedule of j layers starts; f(L))."""
    sizes = np.array(prefix, float)
    finish = np.zeros(len(prefix))
    before = [0] * len(prefix)
    for j in range(1, len(prefix)):
        ends = np.maximum(finish[:j], ready[j - 1]) + costs(cost, sizes[j] - sizes[:j])
        before[j] = int(np.argmin(ends))
        finish[j] = ends[before[j]]
    return before, float(finish[-1])


def _affine(ready: list[float], prefix: list[int], a: float, b: float) -> tuple[list[int], float]:
    """The same DP for t(M) = a + b·M in O(L).

    f and r do not decrease, so the candidates i < j split in two.
    Those with f(i) ≤ r(j−1) start at r(j−1): the largest such i sends the fewest bytes. It only moves right as j grows.
    Those with f(i) > r(j−1) start at f(i): the best has the smallest f(i) − b·S(i), a minimum over a window that loses
    elements on its left and gains them on its right; `window` keeps the indices whose keys still can be that minimum,
    in ascending order of key, so its head is the answer. Each index enters and leaves once.
    """
    layers = len(ready)
    finish = [0.0] * (layers + 1)
    before = [0] * (layers + 1)
    window: deque[tuple[float, int]] = deque()  # (f(i) − b·S(i), i)
    idle = 0  # the largest i with f(i) ≤ r(j−1)
    for j in range(1, layers + 1):
        r, sent = ready[j - 1], b * prefix[j]
        while idle + 1 < j and finish[idle + 1] <= r:
            idle += 1
        while window and window[0][1] <= idle:
            window.popleft()
        best, best_end = idle, r + a + (sent - b * prefix[idle])
        if window:
            i = window[0][1]
            end = finish[i] + a + (sent - b * prefix[i])
            if end < best_end:
                best, best_end = i, end
        before[j], finish[j] = best, best_end
        key = best_end - sent
        while window and window[-1][0] >= key:
            window.pop()
        window.append((key, j))
    return before, finish[-1]
