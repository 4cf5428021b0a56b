"""Planning again: on request, when the network changes, and never by one rank alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mgwfbp.errors import UserError
from mgwfbp.runs.config import Config
from mgwfbp.runs.start import train
from mgwfbp.schedule import AffineCost, IterationTimes, Watch
from mgwfbp.schedule.drift import PATIENCE, WINDOW

QUICK = {"data": "synthetic:28x28x1x10", "lr": 0.005, "profile_iterations": 3, "threads": 1, "batch_size": 4}

pytestmark = pytest.mark.skipif(MPI.COMM_WORLD.size > 2, reason="two ranks show it; make test has eight minutes")


def losses(folder):
    lines = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "iteration" in line]


def test_planning_again_changes_no_weights(world, shared_folder, capsys):
    for replan in ("never", "7"):
        train(Config("mlp", iterations=30, replan=replan, out=f"{shared_folder}/{replan}", **QUICK), world)
    if world.rank == 0:
        printed = capsys.readouterr().out
        assert [f"planning again after iteration {3 + 7 * k}:" in printed for k in range(1, 4)] == [True] * 3
        first, second = losses(f"{shared_folder}/never"), losses(f"{shared_folder}/7")
        assert np.allclose(first, second, rtol=1e-5)


class Slowing(AffineCost):
    """Start-up times of 0.1 ms that become 20 ms after so many messages."""

    calls = 0

    def __call__(self, nbytes):
        Slowing.calls += 1
        return 20e-3 if Slowing.calls > 40 else 1e-4


def test_a_slower_network_is_noticed_and_planned_for(world, shared_folder, capsys):
    Slowing.calls = 0
    config = Config("mlp", iterations=90, schedule="optimal", network="slowing", out=f"{shared_folder}/run", **QUICK)
    summary = train(config, world, Slowing(1e-4, 0.0))
    assert summary["buckets"] == 1  # at 20 ms a message, all layers go together
    assert summary["predicted_iteration_s"] > 20e-3
    if world.rank == 0:
        printed = capsys.readouterr().out
        assert printed.count("planning again after iteration") >= 1
        assert "ms were predicted; a message now costs 2" in printed


def times(seconds):
    return IterationTimes(0, 0, [], 0, round(seconds * 1e9), 0)


def test_a_difference_counts_when_it_lasts_and_all_ranks_decide_alike(world):
    drift = Watch(world.max, "auto")
    asked = []
    for window in range(4 * PATIENCE):
        slow = world.rank == world.size - 1 and window not in (1, 2)  # one rank alone is slow
        for _ in range(WINDOW):
            drift.add(times(0.4 if slow else 0.1))
            asked.append(drift.plan_again(0.1))
        if asked[-1]:
            assert drift.measured_s == pytest.approx(0.4)
            drift.planned()
    # windows 3, 4, 5 are slow; then the patience has doubled: 6 to 11
    assert [place + 1 for place, again in enumerate(asked) if again] == [6 * WINDOW, 12 * WINDOW]


def test_a_small_difference_is_none(world):
    drift = Watch(world.max, "auto")
    for _ in range(5 * PATIENCE * WINDOW):
        drift.add(times(0.12))
        assert not drift.plan_again(0.1)


def test_replan_takes_auto_never_or_a_number():
    for when in ("0", "-1", "sometimes", "1.5", ""):
        with pytest.raises(UserError, match="must be auto, never or a number of iterations"):
            Config("mlp", replan=when)
