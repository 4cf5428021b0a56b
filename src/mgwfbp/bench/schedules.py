"""All policies on a real net, measured in turn in one run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from mgwfbp.bench.profile import SyntheticRun
from mgwfbp.bench.replay import measured_row, plan_all, take_turns
from mgwfbp.comm import CommThread, Transport
from mgwfbp.schedule import AffineCost, Network, Plan, TableCost, unmerged, workload_from_times
from mgwfbp.train.planner import updates_s

TIE = 0.02  # predictions that differ by less do not say which is faster
PROFILED = 6


def bench_schedules(
    run: SyntheticRun,
    cost: AffineCost | TableCost,
    names: Sequence[str],
    rounds: int,
    transport: Transport,
    network: Network,
) -> dict[str, Any]:
    """Predicted and measured iteration times of the policies `names` for `run`'s net, as an object with "rows".

    Collective. `network` is the one that has this `cost`.
    Profiles some unmerged iterations, makes every schedule, then lets the policies take turns, `rounds` times.
    `surprises` lists the pairs that were measured in another order than predicted, where that is by more than 2 %; of
    all `pairs` of schedules `pairs_judged` were predicted to differ by more than that, and `pairs_agree` of those were
    measured in that order.
    """
    world = run.world
    comm = CommThread(world, run.net.arena, transport)
    wfbp = unmerged(len(run.net.learnable))
    profiled = [run.iteration(comm, wfbp) for _ in range(PROFILED + 1)][1:]
    times = [iteration.times for iteration in profiled]
    workload = workload_from_times(run.net.name, run.batch_size, run.net.arena.layers, times, world.max)
    schedules = plan_all(world, workload, cost, names)
    turns = take_turns(lambda schedule: run.iteration(comm, schedule), schedules, rounds)
    comm.close()
    rows = []
    for schedule, done in zip(schedules, turns, strict=True):
        plan = Plan(workload, schedule, cost, updates_s(world, times), world.size, network)
        rows.append(measured_row(world, schedule, plan.iteration_s, done))
    result = {"model": run.net.name, "batch_size": run.batch_size, "rows": rows, "surprises": surprises(rows)}
    return {**result, **agreement(rows)}


def agreement(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many pairs of rows there are, whose order was predicted (by more than 2 %), and was measured as predicted."""
    pairs = [sorted(pair, key=lambda row: row["predicted_iteration_s"]) for pair in combinations(rows, 2)]
    told = [
        (fast, slow)
        for fast, slow in pairs
        if slow["predicted_iteration_s"] > fast["predicted_iteration_s"] * (1 + TIE)
    ]
    agree = sum(fast["measured_iteration_s"] < slow["measured_iteration_s"] for fast, slow in told)
    return {"pairs": len(pairs), "pairs_judged": len(told), "pairs_agree": agree}


def surprises(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Pairs [faster, slower] as measured that were predicted the other way round, by more than 2 % both times."""
    found = []
    for a, b in combinations(rows, 2):
        fast, slow = sorted((a, b), key=lambda row: row["measured_iteration_s"])
        measured = slow["measured_iteration_s"] / fast["measured_iteration_s"]
        predicted = fast["predicted_iteration_s"] / slow["predicted_iteration_s"]
        if min(measured, predicted) > 1 + TIE:
            found.append([fast["schedule"], slow["schedule"]])
    return found
