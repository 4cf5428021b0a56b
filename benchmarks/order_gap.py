"""How far is `pipelined` from the best order of all-reduces that there is?  python benchmarks/order_gap.py

Random workloads of up to 6 layers: every way to cut them into buckets, sent in every order, against `pipelined`, which
looks at orders of one form only (docs/next-forward.md), and against the bound that holds for any schedule.
"""

from __future__ import annotations

import random
from itertools import permutations

import numpy as np

from mgwfbp.schedule import AffineCost, Bucket, LayerProfile, Workload, lower_bound_s, make_schedule, predict

INSTANCES = 2000


def main() -> None:
    rng = random.Random(1)
    gaps, above = [], []
    for _ in range(INSTANCES):
        work, cost = instance(rng)
        best = min(
            duration(work, order, cost) for cuts in groupings(0, len(work.layers)) for order in permutations(cuts)
        )
        found = predict(work, make_schedule("pipelined", work, cost), cost).iteration_s
        gaps.append(found / best - 1)
        above.append(best / lower_bound_s(work, cost) - 1)
    equal = np.mean(np.array(gaps) < 1e-9)
    print(f"{INSTANCES} workloads of 3 to 6 layers")
    print(f"pipelined is the best order of all in {equal:.1%}; on average {np.mean(gaps):.2%} above it, ", end="")
    print(f"95 % of them at most {np.quantile(gaps, 0.95):.2%}, the worst {max(gaps):.1%}")
    reached = np.mean(np.array(above) < 1e-9)
    print(f"the best order reaches the bound in {reached:.1%}, and is on average {np.mean(above):.1%} above it")


def instance(rng: random.Random) -> tuple[Workload, AffineCost]:
    """Sizes that differ by a factor of ten, messages that take about as long as the layers."""
    layers = tuple(
        LayerProfile(str(i), 1, int(10 ** rng.uniform(2, 3)), rng.uniform(0.5, 1.5), rng.uniform(0.2, 0.8))
        for i in range(rng.randint(3, 6))
    )
    work = Workload("random", 1, sum(layer.forward_s or 0.0 for layer in layers), layers)
    return work, AffineCost(rng.uniform(0, 0.5), rng.uniform(0.3, 2.0) * work.backward_s / work.nbytes)


def groupings(first: int, last: int) -> list[list[Bucket]]:
    """Every way to cut the layers [first, last) into buckets."""
    if first == last:
        return [[]]
    return [[Bucket(first, end - 1), *rest] for end in range(first + 1, last + 1) for rest in groupings(end, last)]


def duration(work: Workload, order: tuple[Bucket, ...], cost: AffineCost) -> float:
    """P by its definition: each message when the channel is free and its last layer ready, forward when it has come."""
    ready, left, prefix = work.ready_s(), work.forward_left_s(), work.prefix_nbytes()
    free, worst = 0.0, work.backward_s + work.forward_s
    for bucket in order:
        free = max(free, ready[bucket.last]) + cost(prefix[bucket.last + 1] - prefix[bucket.first])
        worst = max(worst, free + left[bucket.last])
    return worst


if __name__ == "__main__":
    main()
