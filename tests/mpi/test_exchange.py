"""A loop of one's own: right at any number of ranks by construction, or refused; and a run that 220a0d1 left."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import mgwfbp as mg
from mgwfbp.comm import CommThread
from mgwfbp.errors import SharedError, UserError
from mgwfbp.models import MODELS
from mgwfbp.runs.checkpoint import newest
from mgwfbp.schedule import unmerged
from mgwfbp.train.exchange import AllReduced

from .conftest import first_ranks

ROOT = Path(__file__).resolve().parents[2]


def readme_loop():
    """The loop of the README, as a reader would copy it."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert "mg.exchange" in code
    return code


def gradients_of_the_readme(part, monkeypatch, code):
    """The sums that its first iteration has on the ranks of `part`, and the weights after a few."""
    found = []

    def finish(self, original=AllReduced.finish):
        finite = original(self)
        found.append(self.net.arena.gradients.copy())
        return finite

    monkeypatch.setattr(AllReduced, "finish", finish)
    monkeypatch.setitem(vars(mg), "World", lambda: part)
    names: dict = {}
    exec(code.replace("epochs=1", "epochs=1, iterations=4"), names)
    monkeypatch.undo()
    return found[0], names["net"].arena.parameters


def test_the_loop_of_the_readme_is_the_same_training_at_any_number_of_ranks(world, monkeypatch):
    told = readme_loop()
    for code in (told, told.replace("batch.size, exchange.before_layer", "before_layer=exchange.before_layer")):
        results = {}
        for size in {1, 2, 3, world.size}:
            part = first_ranks(world, size) if size <= world.size else None
            if part:
                results[size] = gradients_of_the_readme(part, monkeypatch, code)
                assert len(set(part.comm.allgather(results[size][1].tobytes()))) == 1
            world.comm.Barrier()
        for gradients, weights in results.values():
            reference = results[min(results)]
            assert np.linalg.norm(gradients - reference[0]) <= 1e-5 * np.linalg.norm(reference[0])
            assert np.linalg.norm(weights - reference[1]) <= 1e-5 * np.linalg.norm(reference[1])


def test_all_ranks_get_the_weights_and_the_state_of_rank_0(world):
    net = mg.models.resnet(20, (8, 8, 3)).allocate(seed=world.rank)
    net.state += world.rank
    before = world.comm.bcast((net.arena.parameters.copy(), net.state.copy()))
    with mg.exchange(world, net, mg.SGD(lr=0.1)):
        assert np.array_equal(net.arena.parameters, before[0])
        assert np.array_equal(net.state, before[1])


def test_ranks_with_other_weights_are_refused_before_the_first_message(world):
    net = mg.models.mlp((8, 8, 1)).allocate()
    comm = CommThread(world, net.arena)
    net.arena.parameters[:] = world.rank
    with pytest.raises(SharedError, match=r"ranks differ in their gradient layout, schedule or parameters"):
        comm.begin(unmerged(len(net.learnable)))
    net.arena.parameters[:] = 1
    comm.begin(unmerged(len(net.learnable)))
    for layer in range(len(net.learnable)):
        comm.gradient_ready(layer)
    assert len(list(comm.completed())) == len(net.learnable)
    comm.close()


def test_a_loss_over_this_ranks_samples_alone_is_refused(world):
    net, data = mg.models.mlp((8, 8, 1), 4), mg.load("synthetic:8x8x1x4")
    (batch, *_) = mg.batches(data, 32, epochs=1, rank=world.rank, ranks=world.size)
    images, labels = batch.load()
    says = r"the ranks have 32 samples together, but forward was told of \d+: the learning rate would be another"
    with mg.exchange(world, net, mg.SGD(lr=0.1)) as exchange:
        net.forward(images, labels, batch.step, len(labels))
        with pytest.raises(SharedError, match=says):
            exchange.begin()


@pytest.mark.parametrize("schedule", ["dear:1kB", "single", mg.schedule_from_cuts("mine", [0, 1], 3, "pipelined")])
def test_every_kind_of_schedule_in_a_loop_of_ones_own(world, schedule):
    net, data = mg.models.mlp((8, 8, 1), 4), mg.load("synthetic:8x8x1x4")
    with mg.exchange(world, net, mg.Adam(lr=0.01), schedule, clip_norm=None) as exchange:
        for batch in mg.batches(data, 32, epochs=1, iterations=5, rank=world.rank, ranks=world.size):
            done = mg.train_step(net, exchange, batch)
            assert done.finite
    assert len(set(world.comm.allgather(net.arena.parameters.tobytes()))) == 1  # what was on its way has arrived


def test_a_schedule_that_needs_times_is_refused_in_one_line(world):
    opened = mg.exchange(world, mg.models.mlp(), mg.SGD(lr=0.1), "optimal")
    with pytest.raises(UserError, match=r"schedule optimal needs measured times; take a plan's"):
        opened.__enter__()


def test_a_trainer_goes_on_where_it_ended(world):
    def trainer():
        data = mg.load("synthetic:8x8x1x4", seed=1)
        net = mg.models.mlp(data.shape, data.classes)
        return mg.Trainer(net, data, mg.Adam(lr=1e-3), world=world, lr="fixed", batch_size=64, schedule="sharded")

    whole, parts = trainer(), trainer()
    whole.fit(epochs=2)
    parts.fit(epochs=1)
    summary = parts.fit(epochs=2)
    assert summary["iterations"] == whole.total
    close = np.linalg.norm(whole.net.arena.parameters - parts.net.arena.parameters)
    assert close <= 1e-5 * np.linalg.norm(whole.net.arena.parameters)
    with pytest.raises(SharedError, match="iterations are done; ask for more epochs"):
        parts.fit(epochs=2)


def tiny(input_shape=(8, 8, 1), classes=4):
    layers, net = mg.layers, mg.Net("tiny", input_shape)
    convolution = {"conv": layers.Conv2d(4, 3, pad=1, bias=False), "norm": layers.BatchNorm2d(), "relu": layers.ReLU()}
    rest = {"flat": layers.Flatten(), "drop": layers.Dropout(0.2), "fc": layers.Linear(classes)}
    return net.finish(net.chain(net.input, **convolution, pool=layers.MaxPool2d(2), **rest))


def test_a_run_goes_on_from_a_checkpoint_that_220a0d1_wrote(world, shared_folder, monkeypatch):
    """The one after iteration 4 was continued by that commit, too, on two ranks: here is where it came after 12."""
    monkeypatch.setitem(MODELS, "tiny", tiny)
    old, out = ROOT / "tests/data/run-220a0d1", Path(shared_folder, "run")
    expected = newest(old)
    if world.rank == 0:
        shutil.copytree(old, out)
        shutil.rmtree(out / "checkpoints/iteration-00000012")
    world.comm.Barrier()
    options = json.loads((old / "config.json").read_text())
    known = {key: value for key, value in options.items() if key in mg.Config("").to_dict()}
    summary = mg.run(mg.Config(**{**known, "out": None, "overwrite": False, "resume": str(out)}), world)
    assert summary["iterations"] == expected.iteration == 12
    found = newest(out)
    assert set(found.arrays) == set(expected.arrays) == {"parameters", "velocity", "state"}
    if world.size == 2:  # BatchNorm's statistics are each rank's own
        for name, array in expected.arrays.items():
            assert np.allclose(found.arrays[name], array, rtol=1e-4, atol=1e-5), name
        if world.rank == 0:
            lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            losses = [line["loss"] for line in lines if "iteration" in line]
            before = [json.loads(line) for line in (old / "metrics.jsonl").read_text().splitlines()]
            assert losses == pytest.approx([line["loss"] for line in before if "iteration" in line], rel=1e-4)


def test_hooks_of_a_script_log_and_go_on_in_one_folder(world, shared_folder):
    def trainer():
        record = mg.Record(f"{shared_folder}/run", every=10)
        hooks = [record, mg.Validate(record), mg.Checkpoints(f"{shared_folder}/run", every=7, record=record)]
        data = mg.load("synthetic:8x8x1x4", seed=1)
        net = mg.models.mlp(data.shape, data.classes)
        return mg.Trainer(net, data, mg.Adam(lr=1e-3), world=world, global_batch=256, replan="never", hooks=hooks)

    first = trainer()
    first.fit(epochs=1)
    first.fit(epochs=2)
    summary = trainer().fit(epochs=3)  # another process would begin like this
    if world.rank == 0:
        folder = Path(shared_folder, "run")
        assert json.loads((folder / "summary.json").read_text()) == summary
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [line["iteration"] for line in lines if "iteration" in line] == list(range(1, 25))
        assert [line["epoch"] for line in lines if "val_loss" in line] == [1, 2, 3]
    fresh = mg.Trainer(mg.models.mlp((8, 8, 1), 4), mg.load("synthetic:8x8x1x4"), mg.SGD(lr=0.1), world=world)
    fresh.hooks = [mg.Record(f"{shared_folder}/run")]
    with pytest.raises(SharedError, match="holds another run"):
        fresh.fit(epochs=1)


def small(world, optimizer, **options):
    data = mg.load("synthetic:8x8x1x4", seed=1)
    return mg.Trainer(mg.models.mlp(data.shape, data.classes), data, optimizer, world=world, global_batch=64, **options)


def test_a_resumed_trainer_that_goes_on_does_not_go_back(world, shared_folder):
    small(world, mg.SGD(lr=0.1), hooks=[mg.Checkpoints(shared_folder)]).fit(epochs=1, iterations=8)
    resumed = small(world, mg.SGD(lr=0.1), hooks=[mg.Checkpoints(shared_folder)])
    resumed.fit(epochs=1, iterations=12)
    seen = []
    resumed.hooks = [*resumed.hooks, Seen(seen)]
    resumed.fit(epochs=1, iterations=15)
    assert seen == [12, 13, 14]


class Seen(mg.Hook):
    def __init__(self, seen):
        self.seen = seen

    def before(self, batch):
        self.seen.append(batch.number)


def test_an_optimizer_begins_anew_with_each_trainer_and_keeps_its_rate(world):
    adam = mg.Adam(lr=0.01)
    for _ in range(2):
        small(world, adam).fit(epochs=1, iterations=5)
        assert (adam.lr, adam.steps) == (0.01, 5)


def test_ranks_whose_optimizers_differ_are_told(world):
    momentum = 0.5 + 0.1 * world.rank
    with pytest.raises(SharedError, match=r"optimizer SGD \{.*'momentum': 0.5"):
        small(world, mg.SGD(lr=0.1, momentum=momentum)).fit(epochs=1, iterations=2)
    opened = mg.exchange(world, mg.models.mlp(), mg.SGD(lr=0.1, momentum=momentum))
    with pytest.raises(SharedError, match="ranks differ in their net or optimizer"):
        opened.__enter__()


def test_clipping_by_a_pipelined_schedule_is_refused_in_a_loop_of_ones_own(world):
    pipelined = mg.schedule_from_cuts("mine", [0, 1], 3, "pipelined")
    opened = mg.exchange(world, mg.models.mlp(), mg.SGD(lr=0.1), pipelined, clip_norm=1.0)
    with pytest.raises(UserError, match="updates a layer before all sums are known"):
        opened.__enter__()


def test_a_sharded_loop_whose_sums_are_not_finite_ends_with_an_error(world):
    net, data = mg.models.mlp((8, 8, 1), 4), mg.load("synthetic:8x8x1x4")

    def loop():
        with mg.exchange(world, net, mg.SGD(lr=0.1), "dear:1kB") as exchange:
            for batch in mg.batches(data, 32, epochs=1, iterations=3, rank=world.rank, ranks=world.size):
                images, labels = batch.load()
                net.forward(images * np.nan, labels, batch.step, batch.size, exchange.before_layer)
                exchange.begin()
                net.backward(exchange.gradient_ready)
                exchange.finish()

    with pytest.raises(SharedError, match="a sum of gradients is not finite"):
        loop()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"clip_norm": -1.0}, "must be above 0"),
        ({"replan": "foo"}, "--replan foo"),
        ({"lr": "foo"}, "unknown lr policy"),
        ({"shift": 9}, "out of sight"),
        ({"schedule": "optimall"}, "did you mean 'optimal'"),
        ({"transport": "foo"}, "unknown transport"),
    ],
)
def test_what_a_trainer_cannot_do_is_said_on_all_ranks_alike(world, options, says):
    with pytest.raises(SharedError, match=says):
        small(world, mg.SGD(lr=0.1), **options).fit(epochs=1, iterations=2)
