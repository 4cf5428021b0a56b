"""How good can any schedule be? A lower bound on the iteration time, proven for every monotone cost."""

from __future__ import annotations

import numpy as np

from mgwfbp.schedule.cost import AffineCost, Cost, TableCost
from mgwfbp.schedule.workload import Workload


def lower_bound_s(workload: Workload, cost: Cost) -> float:
    """Seconds that no schedule's iteration can undercut, whatever its buckets and their order.

    A schedule here sends whole layers in messages over one channel, none before its layers' gradients are ready, all of
    them before the iteration ends. With r_l the ready time of layer l, p_l its bytes and S the prefix sums,

        iteration ≥ t_f + max( r_L,  max over l of  r_l + w_l ),

    where w_l is a lower bound on the channel's time for the layers l, l+1, …, L.
    Proof. None of these layers is ready before r_l, so no message that holds one of them starts before r_l; on one
    channel those messages follow each other, so the last of them ends no earlier than r_l plus their total time. It
    remains to bound that total. There is at least one such message, and together they carry M = S_L − S_{l−1} bytes or
    more (more if one also holds an earlier layer).
    For t(m) = a + b·m the k ≥ 1 messages take k·a + b·(bytes) ≥ a + b·M: w_l = a + b·M.
    For any other monotone t, let ρ be the smallest t(m)/m over 0 < m ≤ S_L: the messages take ≥ ρ·M. And the one that
    holds layer l has p_l bytes or more, so it takes ≥ t(p_l) by monotony. w_l is the larger of the two.
    (For a table ρ is attained at a measured size or at S_L: between neighbouring points t(m)/m = slope + constant/m is
    monotone. For a user's own callable ρ is taken as 0, which is always valid.)
    """
    ready = np.array(workload.ready_s())
    sizes = np.array([layer.nbytes for layer in workload.layers], float)
    left = sizes[::-1].cumsum()[::-1]  # M of each l
    if isinstance(cost, AffineCost):
        channel = cost.a + cost.b * left
    else:
        rate = 0.0
        if isinstance(cost, TableCost) and left[0] > 0:
            points = np.array([*(size for size in cost.nbytes if 0 < size < left[0]), left[0]])
            rate = min(float(cost(point)) / float(point) for point in points)
        channel = np.maximum(rate * left, [float(cost(size)) for size in sizes])
    return workload.forward_s + float(max(ready[-1], (ready + channel).max()))
