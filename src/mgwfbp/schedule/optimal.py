"""The exactly optimal schedule: a dynamic programme over cut points.

In gradient-ready order let r(j) be the time layer j's gradient is ready and S(j) the bytes of the first j layers.
One channel sends the buckets in order, so if a prefix of j layers is to end with the bucket (i, j], that bucket
starts when the prefix i is sent and layer j is ready:

    f(j) = min over i < j of  max(f(i), r(j)) + t(S(j) − S(i)),      f(0) = 0.

It is exact for every monotone cost t, because finishing a prefix earlier never delays what follows.
The paper's Algorithm 1 decides greedily, layer by layer, and can miss this optimum (docs/architecture.md).
"""

from __future__ import annotations

from collections import deque

import numpy as np

from mgwfbp.schedule.cost import AffineCost, Cost, costs
from mgwfbp.schedule.workload import Schedule, Workload, schedule_from_cuts


def optimal(workload: Workload, cost: Cost) -> Schedule:
    """The schedule with the smallest iteration time for a monotone `cost`; O(L) if it is affine, else O(L²)."""
    ready, prefix = workload.ready_s(), workload.prefix_nbytes()
    if isinstance(cost, AffineCost):
        before = _affine(ready, prefix, cost.a, cost.b)
    else:
        before = _any_cost(ready, prefix, cost)
    starts, end = [], len(ready)
    while end > 0:
        end = before[end]
        starts.append(end)
    return schedule_from_cuts("optimal", starts[::-1], len(ready))


def _any_cost(ready: list[float], prefix: list[int], cost: Cost) -> list[int]:
    """The DP as it stands. Returns before[j], where the last bucket of the best schedule of j layers starts."""
    sizes = np.array(prefix, float)
    finish = np.zeros(len(prefix))
    before = [0] * len(prefix)
    for j in range(1, len(prefix)):
        ends = np.maximum(finish[:j], ready[j - 1]) + costs(cost, sizes[j] - sizes[:j])
        before[j] = int(np.argmin(ends))
        finish[j] = ends[before[j]]
    return before


def _affine(ready: list[float], prefix: list[int], a: float, b: float) -> list[int]:
    """The same DP for t(M) = a + b·M in O(L).

    f and r do not decrease, so the candidates i < j split in two.
    Those with f(i) ≤ r(j) start at r(j): the largest such i sends the fewest bytes. It only moves right as j grows.
    Those with f(i) > r(j) start at f(i): the best has the smallest f(i) − b·S(i), a minimum over a window that loses
    elements on its left and gains them on its right; `window` keeps the indices whose keys still can be that minimum,
    in ascending order of key, so its head is the answer. Each index enters and leaves once.
    """
    layers = len(ready)
    finish = [0.0] * (layers + 1)
    before = [0] * (layers + 1)
    window: deque[tuple[float, int]] = deque()  # (f(i) − b·S(i), i)
    idle = 0  # the largest i with f(i) ≤ r(j)
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
    return before
