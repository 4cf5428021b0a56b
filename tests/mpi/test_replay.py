"""Emulated messages, replayed workloads, and real nets under several schedules."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import pytest
from mpi4py import MPI

from mgwfbp.bench.profile import SyntheticRun
from mgwfbp.bench.replay import open_replay, replay
from mgwfbp.bench.schedules import bench_schedules, surprises
from mgwfbp.comm import EmulatedTransport, HostTransport, open_transport
from mgwfbp.errors import SharedError, UserError
from mgwfbp.kernels import threads
from mgwfbp.runs.start import load_kernels
from mgwfbp.schedule import AffineCost, LayerProfile, TableCost, Workload, network_of

pytestmark = pytest.mark.skipif(MPI.COMM_WORLD.size > 2, reason="two ranks show it; make test has eight minutes")


def test_an_emulated_message_sums_and_takes_what_the_cost_says(world):
    transport = EmulatedTransport(HostTransport(world.comm), AffineCost(5e-3, 1e-6), world, world.comm)
    taken = []
    for _ in range(5):
        array = np.full(1000, world.rank + 1.0, np.float32)
        world.comm.Barrier()
        start = time.perf_counter()
        transport.all_reduce(array)
        taken.append(time.perf_counter() - start)
        assert np.array_equal(array, np.full(1000, world.size * (world.size + 1) / 2))
    assert min(taken) >= 9e-3  # 5 ms + 4,000 bytes of 1 µs: never shorter
    assert transport.late <= 1
    assert median(taken) < 20e-3  # 9 ms and what a busy machine adds


def test_the_last_rank_to_begin_starts_the_clock_of_all(world):
    transport = EmulatedTransport(HostTransport(world.comm), AffineCost(10e-3, 0), world, world.comm)
    world.comm.Barrier()
    start = time.perf_counter()
    if world.rank == world.size - 1:
        time.sleep(30e-3)
    transport.all_reduce(np.zeros(4, np.float32))
    assert time.perf_counter() - start >= 40e-3


def test_a_message_in_parts_gives_the_same_sums(world, monkeypatch):
    rng = np.random.default_rng(world.rank)
    whole = rng.standard_normal(1000).astype(np.float32)
    parts = whole.copy()
    HostTransport(world.comm).all_reduce(whole)
    monkeypatch.setenv("MGWFBP_MAX_MESSAGE", "77")
    HostTransport(world.comm).all_reduce(parts)
    assert np.array_equal(parts, whole)
    for text in ("0", "-3", "many", "2147483648"):
        monkeypatch.setenv("MGWFBP_MAX_MESSAGE", text)
        with pytest.raises(UserError, match=f"MGWFBP_MAX_MESSAGE={text}: must be a whole number"):
            HostTransport(world.comm)


def test_a_known_cost_as_a_network_file(world):
    transport, cost, network = open_transport(world, 10_000, AffineCost(1e-3, 1e-9))
    assert isinstance(transport, EmulatedTransport)
    assert (cost, network.a_s, network.b_s_per_byte) == (AffineCost(1e-3, 1e-9), 1e-3, 1e-9)
    table = network.cost
    for nbytes in (0, 100, 5_000, 10_000, 1e6):
        assert table(nbytes) == pytest.approx(1e-3 + 1e-9 * nbytes)
    given = TableCost((100.0, 200.0), (1.0, 3.0))
    assert network_of(given, [10], "", 2).seconds == (1.0, 3.0)


def work(count=6):
    layers = tuple(LayerProfile(f"l{i}", 900 + i, 4 * (900 + i), 4e-3) for i in range(count))
    return Workload("stairs", 8, 10e-3, layers)


def test_a_replayed_workload_takes_what_is_predicted(world):
    workload, arena = open_replay(work())
    assert [layer.nbytes for layer in workload.layers] == arena.layer_nbytes
    cost = AffineCost(6e-3, 0.0)
    transport, _, _ = open_transport(world, arena.gradients.nbytes, cost)
    rows, trace = replay(world, workload, arena, cost, ["wfbp", "optimal", "single"], 3, transport)
    by_name = {row["schedule"]: row for row in rows}
    assert [row["buckets"] for row in rows] == [6, by_name["optimal"]["buckets"], 1]
    assert by_name["wfbp"]["predicted_iteration_s"] == pytest.approx(10e-3 + 4e-3 + 6 * 6e-3)
    for row in rows:
        # The clock cannot run ahead of the plan; how far behind is a matter of how busy this machine is.
        assert 0.999 < row["ratio"] < 1.5
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    assert by_name["single"]["overlap"] == 0
    if world.rank == 0:
        names = {event["args"]["schedule"] for event in trace["traceEvents"] if event["ph"] == "X"}
        assert names == {"wfbp", "optimal", "single"}
        assert {event["pid"] for event in trace["traceEvents"]} == set(range(world.size))


def test_a_real_net_under_several_schedules(world):
    run = SyntheticRun(world, "lenet", 2, 1, load_kernels(world, "numpy"))
    with threads(1):
        opened = open_transport(world, run.net.arena.gradients.nbytes, AffineCost(1e-3, 0.0))
        transport, cost, network = opened
        result = bench_schedules(run, cost, ["wfbp", "single"], 2, transport, network)
    assert [row["schedule"] for row in result["rows"]] == ["wfbp", "single"]
    assert all(row["measured_iteration_s"] > 1e-3 for row in result["rows"])


def test_pairs_measured_in_another_order_than_predicted():
    rows = [
        {"schedule": name, "predicted_iteration_s": predicted, "measured_iteration_s": measured}
        for name, predicted, measured in (("a", 1.0, 1.3), ("b", 1.2, 1.1), ("c", 1.01, 1.0))
    ]
    assert surprises(rows) == [["b", "a"]]


def test_ranks_that_want_other_schedules_are_told(world):
    workload, arena = open_replay(work(2))
    with pytest.raises(SharedError, match="differ in their schedules"):
        replay(world, workload, arena, AffineCost(0, 0), ["wfbp" if world.rank else "single"], 1)
