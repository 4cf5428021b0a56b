"""Node sweeps: what each schedule would do on 4, 8, 16, … nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from mgwfbp.errors import UserError
from mgwfbp.schedule import Schedule, Workload, compared, lower_bound_s, make_schedule, predict
from mgwfbp.simulate.jitter import Jitter, jittered
from mgwfbp.simulate.specs import AnyCost, Cluster

FEWEST = 5  # node counts of a plot: two points draw a straight line through whatever lies between them


class Row(NamedTuple):
    """One schedule on one number of nodes; seconds.

    `nodes` is n: nodes, GPUs or ranks, as the cluster's `unit` says. `speedup` is n · (forward + backward) / iteration,
    as in the paper; `efficiency` is speedup / n; `bound_s` is the time that no schedule can undercut and `above_bound`
    the relative distance from it. With jitter `iteration_s` is the mean over the trials and `low_s`, `high_s` the
    interval that holds 95 % of them.
    """

    nodes: int
    schedule: str
    buckets: int
    iteration_s: float
    speedup: float
    efficiency: float
    exposed_s: float
    overlap: float
    bound_s: float
    above_bound: float
    low_s: float | None = None
    high_s: float | None = None


def node_counts(text: str | None, cluster: Cluster) -> list[int]:
    """The node counts of `--nodes 4,8,16`, or those that the network itself names. Raises UserError."""
    unit = cluster.unit
    if text is None:
        if cluster.nodes is not None:
            return [cluster.nodes]
        if cluster.known is not None:
            return list(cluster.known)
        raise UserError(f"network {cluster.spec!r} is for any number of {unit}: say which, --nodes 4,8,16,32,64")
    if cluster.nodes is not None:
        raise UserError(f"network {cluster.spec!r} names {cluster.nodes} {unit} already: leave that out, or --nodes")
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d{1,10}", part) and 1 <= int(part) <= 10**9 for part in parts):
        raise UserError(f"--nodes {text!r}: write whole numbers ≥ 1 with commas between, 4,8,16,32,64")
    return [int(part) for part in parts]


def plotted_counts(counts: Sequence[int], cluster: Cluster) -> list[int]:
    """The node counts of a plot, ascending: `counts`, and where they are fewer than FEWEST, others beside them.

    These are the powers of two, or one and what the network knows: all up to the largest of `counts`, and if that is
    not enough the next ones. Fewer than FEWEST come back where the network knows no more.
    """
    chosen = set(counts)
    others = [1, *cluster.known] if cluster.known else [2**power for power in range(31)]
    for other in others if len(chosen) < FEWEST else ():
        if other < max(counts) or len(chosen) < FEWEST:
            chosen.add(other)
    return sorted(chosen)


def sweep(
    workload: Workload, cluster: Cluster, nodes: Sequence[int], names: Sequence[str] = (), jitter: Jitter | None = None
) -> list[Row]:
    """A row for each number of `nodes` and each policy of `names` (all, if none is named). Raises UserError."""
    rows = []
    alone = workload.forward_s + workload.backward_s
    for n in nodes:
        cost = cluster.between(n)
        bound = lower_bound_s(workload, cost)
        schedules = {name: make_schedule(name, workload, cost) for name in names or compared()}
        noisy = jittered(workload, cost, list(schedules.values()), n, jitter) if jitter else None
        for place, (name, schedule) in enumerate(schedules.items()):
            row = _row(workload, cost, n, name, schedule, alone, bound)
            if noisy is not None:
                row = with_trials(row, *noisy[place], alone)
            rows.append(row)
    return rows


def _row(workload: Workload, cost: AnyCost, n: int, name: str, schedule: Schedule, alone: float, bound: float) -> Row:
    result = predict(workload, schedule, cost)
    speedup = n * alone / result.iteration_s if result.iteration_s else float(n)
    above = result.iteration_s / bound - 1 if bound else 0.0
    return Row(
        n,
        name,
        len(schedule.buckets),
        result.iteration_s,
        speedup,
        speedup / n,
        result.exposed_s,
        result.overlap,
        bound,
        above,
    )


def with_trials(row: Row, mean: float, low: float, high: float, alone: float) -> Row:
    """`row` with the iteration times of a jitter experiment; the bound holds for the quiet iteration and is dropped."""
    speedup = row.nodes * alone / mean if mean else float(row.nodes)
    return row._replace(iteration_s=mean, low_s=low, high_s=high, speedup=speedup, efficiency=speedup / row.nodes)
