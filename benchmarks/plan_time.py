"""How long do the computed schedules take to compute? Time against the number of layers.

    python benchmarks/plan_time.py [--repeats 7]

Random layer times and sizes; all cases are measured in turn, again and again, and medians are printed. `optimal` is
O(L) for a line and O(L²) for a table; those that run into the next forward are O(L³) or so, on whole arrays.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from mgwfbp.schedule import AffineCost, LayerProfile, TableCost, Workload, make_schedule
from mgwfbp.schedule.cost import Cost

LINE = AffineCost(5e-5, 1e-9)
TABLE = TableCost((0.0, 1e4, 1e6, 1e9), (5e-5, 7e-5, 1.1e-3, 1.0))
DEAR = AffineCost(5e-4, 3e-9)  # a network too slow for backward alone
CASES: list[tuple[str, str, int, Cost]] = [
    *(("optimal", "line", n, LINE) for n in (1_000, 10_000, 100_000)),
    *(("optimal", "table", n, TABLE) for n in (1_000, 4_000)),
    *((policy, "slow line", n, DEAR) for policy in ("pipelined", "sharded", "best") for n in (250, 1_000)),
]


def random_workload(layers: int, seed: int) -> Workload:
    rng = random.Random(seed)
    profiles = [
        LayerProfile(f"l{i}", size, 4 * size, rng.uniform(0, 2e-3), rng.uniform(0, 1e-3))
        for i, size in enumerate(rng.randint(64, 10**6) for _ in range(layers))
    ]
    return Workload("random", 1, sum(profile.forward_s or 0.0 for profile in profiles), tuple(profiles))


def seconds(policy: str, workload: Workload, cost: Cost) -> float:
    start = time.perf_counter()
    make_schedule(policy, workload, cost)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    times: dict[tuple[str, str, int], list[float]] = {case[:3]: [] for case in CASES}
    workloads = {n: random_workload(n, n) for *_, n, _ in CASES}
    for _ in range(repeats):
        for policy, kind, n, cost in CASES:
            times[policy, kind, n].append(seconds(policy, workloads[n], cost))
    print(f"{'policy':<12}{'cost':<12}{'layers':>8}{'median s':>12}{'min':>10}{'max':>10}")
    for (policy, kind, n), took in times.items():
        print(f"{policy:<12}{kind:<12}{n:>8,}{statistics.median(took):>12.4f}{min(took):>10.4f}{max(took):>10.4f}")
    pairs = zip(times["optimal", "line", 100_000], times["optimal", "line", 10_000], strict=True)
    ratios = [long / short for long, short in pairs]
    print(f"100,000 layers against 10,000: {statistics.median(ratios):.1f}× ({min(ratios):.1f} to {max(ratios):.1f})")


if __name__ == "__main__":
    main()
