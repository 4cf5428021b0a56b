"""How long does the exact schedule take to compute? Time against the number of layers, O(L) and O(L²) forms.

    python benchmarks/plan_time.py [--repeats 7]

Random layer times and sizes, an affine cost; all sizes are measured in turn, again and again, and medians are printed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from mgwfbp.schedule import AffineCost, LayerProfile, TableCost, Workload, make_schedule
from mgwfbp.schedule.cost import Cost


def random_workload(layers: int, seed: int) -> Workload:
    rng = random.Random(seed)
    profiles = [
        LayerProfile(f"l{i}", size, 4 * size, rng.uniform(0, 2e-3))
        for i, size in enumerate(rng.randint(64, 10**6) for _ in range(layers))
    ]
    return Workload("random", 1, 0.0, tuple(profiles))


def seconds(workload: Workload, cost: Cost) -> float:
    start = time.perf_counter()
    make_schedule("optimal", workload, cost)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    line = AffineCost(5e-5, 1e-9)
    table = TableCost((0.0, 1e4, 1e6, 1e9), (5e-5, 7e-5, 1.1e-3, 1.0))
    cases: list[tuple[str, int, Cost]] = [("affine, O(L)", n, line) for n in (1_000, 10_000, 100_000)]
    cases += [("table, O(L²)", n, table) for n in (1_000, 4_000)]
    times: dict[tuple[str, int], list[float]] = {(name, n): [] for name, n, _ in cases}
    workloads = {n: random_workload(n, n) for _, n, _ in cases}
    for _ in range(repeats):
        for name, n, cost in cases:
            times[name, n].append(seconds(workloads[n], cost))
    print(f"{'cost':<16}{'layers':>10}{'median s':>12}{'min':>10}{'max':>10}")
    for (name, n), values in times.items():
        print(f"{name:<16}{n:>10,}{statistics.median(values):>12.4f}{min(values):>10.4f}{max(values):>10.4f}")
    ratios = [
        long / short for long, short in zip(times["affine, O(L)", 100_000], times["affine, O(L)", 10_000], strict=True)
    ]
    print(f"100,000 layers against 10,000: {statistics.median(ratios):.1f}× ({min(ratios):.1f} to {max(ratios):.1f})")


if __name__ == "__main__":
    main()
