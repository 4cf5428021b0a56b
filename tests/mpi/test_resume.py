"""Checkpoints: a run that is taken up again ends with the weights of one that was never broken."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mgwfbp.data import load
from mgwfbp.errors import SharedError, UserError
from mgwfbp.net import tensors
from mgwfbp.runs.checkpoint import newest
from mgwfbp.runs.config import Config
from mgwfbp.runs.judge import judge
from mgwfbp.runs.start import train
from mgwfbp.runs.trained import trained
from mgwfbp.schedule import plan_from_dict

from .conftest import first_ranks

# BatchNorm, momentum, augmentation, a learning rate that changes, and a checkpoint in the middle of an epoch.
RUN = {
    "data": "synthetic:8x8x3x10",
    "lr": 0.01,
    "profile_iterations": 3,
    "threads": 1,
    "shift": 1,
    "flip": True,
    "global_batch_size": 64,
    "checkpoint_every": 7,
    "replan": "never",
    "iterations": 24,
}

pytestmark = pytest.mark.skipif(MPI.COMM_WORLD.size > 2, reason="two ranks show it; make test has eight minutes")


def lines(folder):
    return [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def unbroken(world, shared_folder):
    """(the folder of a run of 24 iterations, its summary)."""
    out = f"{shared_folder}/unbroken"
    return out, train(Config("resnet20", out=out, **RUN), world)


def copy(world, source, target, *, drop=()):
    if world.rank == 0:
        shutil.copytree(source, target)
        for name in drop:
            shutil.rmtree(Path(target, "checkpoints", name))
    world.comm.Barrier()


def test_a_resumed_run_is_the_same_to_the_last_bit(world, shared_folder, unbroken):
    out, whole = unbroken
    if world.rank == 0:  # every 7, and the last; three stay
        names = sorted(path.name for path in Path(out, "checkpoints").iterdir())
        assert names == ["iteration-00000014", "iteration-00000021", "iteration-00000024"]
    broken = f"{shared_folder}/broken"
    copy(world, out, broken, drop=["iteration-00000021", "iteration-00000024"])
    resumed = train(Config("resnet20", resume=broken, **RUN), world)
    assert resumed["parameters_sha256"] == whole["parameters_sha256"]
    assert resumed["train_loss"] == whole["train_loss"]
    assert resumed["val_accuracy"] == whole["val_accuracy"]
    if world.rank == 0:
        logged = [[line["iteration"], line["loss"]] for line in lines(broken) if "iteration" in line]
        assert logged == [[line["iteration"], line["loss"]] for line in lines(out) if "iteration" in line]


def test_another_number_of_ranks_continues_to_the_tolerance_of_the_sum(world, shared_folder):
    options = {**RUN, "data": "synthetic:28x28x1x10", "shift": 0, "flip": False}
    out = f"{shared_folder}/mlp"
    whole = train(Config("mlp", out=out, **options), world)
    alone = f"{shared_folder}/alone"
    copy(world, out, alone, drop=["iteration-00000021", "iteration-00000024"])
    part = first_ranks(world, 1)
    if part:
        resumed = train(Config("mlp", resume=alone, **options), part)
        assert resumed["train_loss"] == pytest.approx(whole["train_loss"], rel=1e-4)
    world.comm.Barrier()


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(world, shared_folder, unbroken, capsys):
    out, whole = unbroken
    damaged = f"{shared_folder}/damaged"
    copy(world, out, damaged, drop=["iteration-00000024"])
    if world.rank == 0:
        arrays = Path(damaged, "checkpoints", "iteration-00000021", "arrays.safetensors")
        data = bytearray(arrays.read_bytes())
        data[-5] ^= 1
        arrays.write_bytes(data)
    resumed = train(Config("resnet20", resume=damaged, **RUN), world)
    assert resumed["parameters_sha256"] == whole["parameters_sha256"]
    if world.rank == 0:
        printed = capsys.readouterr()
        assert "iteration-00000021: arrays.safetensors is damaged" in printed.err
        assert "resumed after iteration 14" in printed.out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lr": 0.02}, "is from a run with lr 0.01, this one has 0.02"),
        ({"global_batch_size": 32}, "has global batch size 64, this run 32"),
        ({"seed": 3}, "is from a run with seed 1, this one has 3"),
    ],
)
def test_another_run_is_refused_with_the_reason(world, shared_folder, change, says):
    out = f"{shared_folder}/run"
    options = {**RUN, "iterations": 3, "data": "synthetic:28x28x1x10"}
    train(Config("mlp", out=out, **options), world)
    with pytest.raises(SharedError, match=says):
        train(Config("mlp", resume=out, **{**options, **change}), world)


def test_auto_begins_where_there_is_nothing_and_goes_on_where_there_is(world, shared_folder, capsys):
    options = {**RUN, "iterations": 9, "data": "synthetic:28x28x1x10", "out": f"{shared_folder}/auto", "resume": "auto"}
    train(Config("mlp", **options), world)
    if world.rank == 0:
        assert "resumed" not in capsys.readouterr().out
        shutil.rmtree(Path(options["out"], "checkpoints", "iteration-00000009"))
    world.comm.Barrier()
    train(Config("mlp", **options), world)
    if world.rank == 0:
        assert "resumed after iteration 7" in capsys.readouterr().out
    world.comm.Barrier()
    with pytest.raises(SharedError, match="all 9 iterations are done"):
        train(Config("mlp", **options), world)


def test_another_runs_folder_is_left_alone(world, shared_folder):
    options = {**RUN, "iterations": 8, "data": "synthetic:28x28x1x10"}
    first, second = f"{shared_folder}/first", f"{shared_folder}/second"
    for out in (first, second):
        train(Config("mlp", out=out, **options), world)
    copy(world, first, f"{shared_folder}/third", drop=["iteration-00000008"])
    with pytest.raises(SharedError, match="holds another run"):
        train(Config("mlp", out=second, resume=f"{shared_folder}/third", **options), world)
    if world.rank == 0:
        Path(second, "summary.json").unlink()
        shutil.rmtree(Path(second, "checkpoints"))
    world.comm.Barrier()
    with pytest.raises(SharedError, match="holds another run"):  # its options are others: not ours to replace
        train(Config("mlp", out=second, resume="auto", **{**options, "lr": 0.5}), world)
    train(Config("mlp", out=second, resume="auto", **options), world)


def test_going_back_to_an_older_checkpoint_drops_the_later_ones(world, shared_folder, unbroken):
    out, whole = unbroken
    back = f"{shared_folder}/back"
    copy(world, out, back)
    resumed = train(Config("resnet20", resume=f"{back}/checkpoints/iteration-00000014", **RUN), world)
    assert resumed["parameters_sha256"] == whole["parameters_sha256"]
    if world.rank == 0:
        with open(Path(back, "metrics.jsonl"), "a") as log:
            log.write('{"iteration": ')  # cut off
    world.comm.Barrier()
    if world.rank == 0:
        shutil.rmtree(Path(back, "checkpoints", "iteration-00000024"))
    world.comm.Barrier()
    again = train(Config("resnet20", resume=back, **RUN), world)
    assert again["parameters_sha256"] == whole["parameters_sha256"]
    if world.rank == 0:
        assert [line["iteration"] for line in lines(back) if "iteration" in line] == list(range(1, 25))


def test_only_a_short_batch_is_left(world, shared_folder):
    options = {**RUN, "data": "synthetic:28x28x1x10", "global_batch_size": 1000, "checkpoint_every": 2, "epochs": 1}
    out = f"{shared_folder}/short"
    del options["iterations"]
    train(Config("mlp", out=out, **options), world)  # 2,048 samples: 1000, 1000, 48
    if world.rank == 0:
        shutil.rmtree(Path(out, "checkpoints", "iteration-00000003"))
    world.comm.Barrier()
    summary = train(Config("mlp", resume=out, **options), world)
    assert summary["iterations"] == 3


def test_what_is_no_checkpoint(world, shared_folder):
    for resume, out, says in (
        (f"{shared_folder}/none", None, "there is no such folder"),
        ("auto", None, "name the run folder, --out FOLDER"),
    ):
        with pytest.raises(SharedError, match=says):
            train(Config("mlp", resume=resume, out=out, **{**RUN, "data": "synthetic:28x28x1x10"}), world)


def test_the_arrays_are_plain_and_complete(world, unbroken):
    out, _ = unbroken
    if world.rank == 0:
        found = newest(Path(out))
        assert found.iteration == 24
        assert set(found.arrays) == {"parameters", "velocity", "state"}
        assert found.arrays["state"].shape[0] == world.size
        assert np.isfinite(found.arrays["velocity"]).all()
        assert found.record["config"]["model"] == "resnet20"


def test_other_data_is_not_gone_on_with(world, shared_folder, monkeypatch):
    options = {**RUN, "iterations": 3, "data": "synthetic:8x8x1x10", "shift": 0}
    out = f"{shared_folder}/run"
    train(Config("mlp", out=out, **options), world)

    def other(spec, folder=None, seed=0, **_):
        return load(spec, folder, seed + 1)

    monkeypatch.setattr("mgwfbp.runs.start.load", other)
    with pytest.raises(SharedError, match="has data 2048 .* this run 2048"):
        train(Config("mlp", resume=out, **options), world)


def test_ranks_with_other_images_are_told_before_the_first_message(world, shared_folder, monkeypatch):
    """Files of the same size with other contents, as a node with a stale copy has them."""

    def stale(spec, folder=None, seed=0, **_):
        return load(spec, folder, seed + (world.rank == world.size - 1))

    monkeypatch.setattr("mgwfbp.runs.start.load", stale)
    with pytest.raises(SharedError, match=r"rank 0 has .* \[files 2048 \+ 512 samples, .* has .* \[files 2048"):
        train(Config("mlp", out=f"{shared_folder}/run", **{**RUN, "data": "synthetic:8x8x1x10", "shift": 0}), world)


def test_what_is_not_ours_among_the_checkpoints_is_left_alone(world, shared_folder, unbroken):
    out, whole = unbroken
    if world.rank == 0:
        checkpoints = Path(out, "checkpoints")
        for name in ("iteration-best", ".iteration-00000003"):  # somebody's copy; a write that was killed
            shutil.copytree(checkpoints / "iteration-00000014", checkpoints / name)
        shutil.rmtree(checkpoints / "iteration-00000024")
        Path(out, "metrics.jsonl").unlink()  # the folder of a resumed run is never cleared
    world.comm.Barrier()
    resumed = train(Config("resnet20", out=out, resume="auto", overwrite=True, **RUN), world)
    assert resumed["parameters_sha256"] == whole["parameters_sha256"]
    if world.rank == 0:
        names = sorted(path.name for path in checkpoints.iterdir())
        assert names == ["iteration-00000014", "iteration-00000021", "iteration-00000024", "iteration-best"]


def test_the_umask_is_kept(world, shared_folder):
    mask = os.umask(0o077)
    try:
        out = f"{shared_folder}/private"
        train(Config("mlp", out=out, **{**RUN, "iterations": 3, "data": "synthetic:8x8x1x10", "shift": 0}), world)
    finally:
        os.umask(mask)
    if world.rank == 0:
        files = [path for path in Path(out).rglob("*") if path.is_file()]
        assert len(files) > 6
        assert not any(path.stat().st_mode & 0o077 for path in files)


LENET = {**RUN, "data": "synthetic:28x28x1x10", "shift": 0, "flip": False, "checkpoint_every": None, "iterations": None}


def test_a_run_that_is_resumed_is_as_it_was_but_for_what_is_said(world, shared_folder, capsys):
    out, whole = f"{shared_folder}/run", f"{shared_folder}/whole"
    options = {**LENET, "lr_policy": "fixed", "epochs": 1}
    train(Config("mlp", out=out, **options), world)
    longer = train({"resume": out, "epochs": 2}, world)
    at_once = train(Config("mlp", out=whole, **{**options, "epochs": 2}), world)
    assert longer["parameters_sha256"] == at_once["parameters_sha256"]
    assert longer["iterations"] == at_once["iterations"]
    if world.rank == 0:
        assert "goes by the run's length" not in capsys.readouterr().out  # fixed does not
        config = json.loads(Path(out, "config.json").read_text())
        assert (config["epochs"], config["lr"], config["seed"]) == (2, 0.01, 1)
        steps = longer["iterations"] // 2
        assert config["changes"] == [{"after": steps, "option": "iterations", "before": steps, "now": 2 * steps}]
    with pytest.raises(SharedError, match="all 64 iterations are done, .*ask for more than 2 with --epochs"):
        train({"resume": out}, world)


def test_a_learning_rate_that_goes_by_the_length_counts_the_new_one_and_says_so(world, shared_folder, capsys):
    out = f"{shared_folder}/run"
    train(Config("mlp", out=out, **{**LENET, "epochs": 1}), world)
    train({"resume": out, "epochs": 2}, world)
    if world.rank == 0:
        assert (
            "from here on 64 iterations count instead of 32, and the learning rate is 0.005" in capsys.readouterr().out
        )
        rates = [line["lr"] for line in lines(out) if "lr" in line]
        assert rates[31] == pytest.approx(0.01 / 32)
        assert rates[32] == pytest.approx(0.01 * (1 - 32 / 64))


def test_what_decides_weights_is_changed_only_where_that_is_meant(world, shared_folder, capsys):
    out = f"{shared_folder}/run"
    train(Config("mlp", out=out, **{**LENET, "epochs": 1}), world)
    with pytest.raises(SharedError, match="is from a run with lr 0.01, this one has 0.002; leave .* or --change"):
        train({"resume": out, "epochs": 2, "lr": 0.002}, world)
    train({"resume": out, "epochs": 2, "lr": 0.002, "change": True}, world)
    if world.rank == 0:
        assert "changed: lr from 0.01 to 0.002" in capsys.readouterr().out
        record = newest(Path(out)).record
        assert record["changes"][0] == {"after": 32, "option": "lr", "before": 0.01, "now": 0.002}


def test_fewer_iterations_are_no_extension(world, shared_folder):
    out = f"{shared_folder}/run"
    train(Config("mlp", out=out, **{**LENET, "iterations": 9, "checkpoint_every": 3}), world)
    early = {"resume": f"{out}/checkpoints/iteration-00000003", "iterations": 6, "out": f"{out}2"}
    with pytest.raises(SharedError, match="from a run of 9 iterations, this one has 6; more are fine"):
        train(early, world)
    assert train({**early, "change": True}, world)["iterations"] == 6


def test_a_checkpoint_names_its_tensors_and_what_the_net_saw(world, shared_folder):
    out = f"{shared_folder}/run"
    options = {**RUN, "iterations": 4}
    train(Config("resnet20", out=out, freeze="stem/*,stage1/*", **options), world)
    if world.rank == 0:
        record, arrays = newest(Path(out)).record, newest(Path(out)).arrays
        array, start, shape = record["tensors"]["fc.weight"]
        found = arrays[array][start : start + 640].reshape(shape)
        assert shape == [64, 10]
        assert found.std() > 0
        assert record["tensors"]["stem/conv.weight"][0] == "frozen"
        assert record["input"]["class_names"] == [str(number) for number in range(10)]
        again = trained(out)
        assert np.array_equal(tensors(again.net)["fc.weight"], found)
    resumed = train({"resume": out, "iterations": 6}, world)
    assert len(set(resumed["parameters_sha256"])) == 1
    with pytest.raises(SharedError, match="is from a run with freeze stem/.*,stage1/.*, this one has None"):
        train(Config("resnet20", resume=out, **{**RUN, "iterations": 8}), world)


def test_fine_tuning_begins_with_the_weights_and_leaves_what_is_frozen(world, shared_folder, capsys):
    first, second = f"{shared_folder}/first", f"{shared_folder}/second"
    train(Config("lenet", out=first, **{**LENET, "iterations": 4}), world)
    options = {**LENET, "iterations": 3, "data": "synthetic:28x28x1x3"}
    with pytest.raises(SharedError, match=r"ip2.weight is \(500, 10\) there and \(500, 3\) here; --replace-head"):
        train(Config("lenet", out=second, weights=first, **options), world)
    train(
        Config("lenet", out=second, weights=first, replace_head=True, freeze="conv*", rates="ip1=0", **options), world
    )
    if world.rank == 0:
        assert f"begins with the weights of {first}, but ip2" in capsys.readouterr().out
        before, after = tensors(trained(first).net), tensors(trained(second).net)
        same = {name for name in before if np.array_equal(before[name], after.get(name))}
        assert same == {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "ip1.weight", "ip1.bias"}


def test_evaluation_of_a_run_is_that_of_its_end_on_any_number_of_ranks(world, shared_folder):
    out = f"{shared_folder}/run"
    summary = train(Config("resnet20", out=out, **{**RUN, "iterations": 5}), world)
    found = judge(world, out)
    assert found["accuracy"] == summary["val_accuracy"]
    assert (found["samples"], found["validated_on"], found["iteration"]) == (512, "validation", 5)
    with pytest.raises(SharedError, match=r"are for images of \(8, 8, 3\) in 10 classes .*, synthetic:8x8x3x4 has"):
        judge(world, out, data="synthetic:8x8x3x4")


def everything(folder):
    """What is in a folder, byte by byte."""
    files = [path for path in sorted(Path(folder).rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"rates": "nosuch=1", "change": True}, "no layer or tensor that learns is called 'nosuch'"),
        ({"optimizer": "adam", "lr": 0.001, "change": True}, "has no m: it was left by another optimizer"),
        (
            {"freeze": "fc1", "change": True},
            "with freeze None, this one has fc1; .* begin a new run with its --weights",
        ),
        ({"weights": "elsewhere"}, "--resume goes on with a run's own weights"),
        ({"epoch": 5}, "unknown option 'epoch': did you mean 'epochs'"),
    ],
)
def test_a_start_that_is_refused_changes_nothing(world, shared_folder, said, says):
    out = f"{shared_folder}/run"
    train(Config("mlp", out=out, **{**LENET, "iterations": 9, "checkpoint_every": 3}), world)
    before = everything(out)
    with pytest.raises(UserError, match=says):
        train({"resume": f"{out}/checkpoints/iteration-00000003", "epochs": 4, **said}, world)
    world.comm.Barrier()
    assert everything(out) == before


def test_an_overwriting_run_that_is_refused_leaves_the_old_one(world, shared_folder):
    out = f"{shared_folder}/run"
    train(Config("mlp", out=out, **{**LENET, "iterations": 3}), world)
    before = everything(out)
    with pytest.raises(SharedError, match="must be a finite number"):
        train(Config("mlp", out=out, overwrite=True, rates="fc1=-1", **{**LENET, "iterations": 3}), world)
    world.comm.Barrier()
    assert everything(out) == before


def test_iterations_alone_extend_a_run_and_a_batch_size_is_heard(world, shared_folder):
    out = f"{shared_folder}/run"
    train(Config("mlp", out=out, **{**LENET, "iterations": 9, "epochs": 1}), world)
    assert train({"resume": out, "iterations": 40}, world)["iterations"] == 40
    with pytest.raises(SharedError, match="has global batch size 64, this run"):
        train({"resume": out, "iterations": 50, "batch_size": 5}, world)


def test_a_run_goes_on_with_a_plan_that_clipping_allows(world, shared_folder):
    if world.size == 1:
        pytest.skip("one rank plans nothing")
    out = f"{shared_folder}/run"
    options = {**LENET, "iterations": 8, "schedule": "pipelined", "network": "a=1ms,b=2ns"}
    train(Config("mlp", out=out, **options), world)
    if world.rank == 0:
        found = newest(Path(out))
        assert plan_from_dict(found.record["plan"], "here").schedule.mode == "pipelined"
        found.record["config"]["schedule"] = "best"  # which is what may have planned it
        (found.path / "checkpoint.json").write_text(json.dumps(found.record))
    world.comm.Barrier()
    assert train({"resume": out, "iterations": 12, "clip_norm": 1.0, "change": True}, world)["iterations"] == 12
