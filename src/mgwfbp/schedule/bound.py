"""How good can any schedule be? A lower bound on the iteration time, proven for every monotone cost."""

from __future__ import annotations

import numpy as np

from mgwfbp.schedule.cost import AffineCost, Cost, TableCost, halves
from mgwfbp.schedule.workload import Workload


def lower_bound_s(workload: Workload, cost: Cost) -> float:
    """Seconds that no schedule's iteration can undercut, whatever its buckets, their order, and what forward waits for.

    A schedule here sends whole layers in messages over one channel, none before its layers' gradients are ready, each
    before the next forward of its layers begins. The layers 0..L−1 are in gradient-ready order; r_l is the time from
    the start of backward at which layer l is ready, q_l the forward time of the layers 0..l, B and F those of backward
    and forward, p_l the bytes of layer l and S the prefix sums. Then

        iteration ≥ max( B + F,  max over l of  r_l + w_l + q_l ),

    where w_l is a lower bound on the channel's time for the layers l, l+1, …, L−1.
    Proof. None of these layers is ready before r_l, so no message that holds one of them starts before r_l; on one
    channel those messages follow each other, so the last of them ends no earlier than r_l plus their total time. It
    holds a layer of l..L−1, whose forward cannot begin before, and from there on q_l or more is left.
    It remains to bound the total. There is at least one such message, and together they carry M = S(L) − S(l) bytes,
    or more if one also holds an earlier layer.
    For t(m) = a + b·m the k ≥ 1 messages take k·a + b·(bytes) ≥ a + b·M: w_l = a + b·M.
    For any other monotone t, let ρ be the smallest t(m)/m over 0 < m ≤ S(L): the messages take ≥ ρ·M. And the one that
    holds layer l has p_l bytes or more, so it takes ≥ t(p_l) by monotony, and q_l or more is left after it. w_l is the
    larger of the two.
    (For a table ρ is attained at a measured size or at S(L): between neighbouring points t(m)/m = slope + constant/m is
    monotone. For a user's own callable ρ is taken as 0, which is always valid.)
    Where an all-reduce is split in halves that are cheaper together than the whole, they take its place.
    """
    ready, after = np.array(workload.ready_s()), np.array(workload.forward_left_s())
    sizes = np.array([layer.nbytes for layer in workload.layers], float)
    left = sizes[::-1].cumsum()[::-1]  # M of each l
    parts = halves(cost)

    def least(nbytes: float) -> float:
        return min(float(cost(nbytes)), sum(float(part(nbytes)) for part in parts))

    scatter, gather = parts
    if isinstance(cost, AffineCost) and isinstance(scatter, AffineCost) and isinstance(gather, AffineCost):
        channel = min(cost.a, scatter.a + gather.a) + min(cost.b, scatter.b + gather.b) * left
    else:
        rate = 0.0
        if isinstance(cost, TableCost) and left[0] > 0:
            tables = [cost, *(part for part in parts if isinstance(part, TableCost))]
            points = {size for table in tables for size in table.nbytes if 0 < size < left[0]} | {left[0]}
            rate = min(least(point) / point for point in points)
        channel = np.maximum(rate * left, [least(size) for size in sizes])
    return max(workload.forward_s + float(ready[-1]), float((ready + channel + after).max()))
