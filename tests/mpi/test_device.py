"""What a GPU must be waited for, checked without one: streams that do nothing until somebody waits."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mgwfbp.comm import CommThread
from mgwfbp.comm.transports.device import DeviceTransport, StagedTransport
from mgwfbp.comm.transports.open import own_transport
from mgwfbp.errors import SharedError
from mgwfbp.kernels.gpu.load import _made
from mgwfbp.runs.config import Config
from mgwfbp.runs.start import train
from mgwfbp.schedule import PIPELINED, SHARDED, AffineCost, Bucket, Schedule, schedule_from_cuts
from tests import cuda_on_host
from tests.cuda_on_host import to_device, to_host
from tests.streams_on_host import LazyCupy, nothing_in_the_default_stream, pinned

from .test_comm import LAYERS, expected, fill, make_arena

ROOT = Path(__file__).resolve().parents[2]
SCHEDULES = [
    schedule_from_cuts("all-reduce", [0, 2], LAYERS),
    Schedule("pipelined", (Bucket(0, 0), Bucket(3, 4), Bucket(1, 2)), PIPELINED),
    schedule_from_cuts("sharded", [0, 1, 3], LAYERS, SHARDED),
]


def run(world, transport, cupy, schedule, iterations=4):
    """The parameters after some iterations whose gradients and updates are only put into the compute stream.

    An update adds the sum of the gradients to the parameters. Between iterations the device catches up.
    """
    arena = make_arena()
    arena.parameters, arena.gradients = to_device(arena.parameters), to_device(arena.gradients)
    comm, compute = CommThread(world, arena, transport), cupy.cuda.Stream(non_blocking=True).use()

    def put(layer, source):
        part = arena.layer_slices[layer]
        compute.put(lambda: np.copyto(to_host(arena.gradients)[part], source[part]))

    def update(part):
        def add():
            to_host(arena.parameters)[part] += to_host(arena.gradients)[part]

        compute.put(add)

    for iteration in range(iterations):
        mine = make_arena()
        fill(mine, world.rank, iteration)
        comm.begin(schedule)
        for layer in range(LAYERS):
            put(layer, mine.gradients)
            comm.gradient_ready(layer)
        for sent in comm.completed():
            for part in sent.own:
                update(part)
        if schedule.mode == SHARDED:
            comm.updated()
            list(comm.gathered())
        compute.run()
        to_host(arena.gradients)[...] = np.nan  # whoever sends too early sends this
    comm.close()
    return to_host(arena.parameters)


def right(world, iterations=4):
    arena = make_arena()
    return sum(expected(arena, world.size, iteration) for iteration in range(iterations))


def staged(world, cupy, kind=StagedTransport):
    transport = kind(world.comm.Dup(), cupy, len(make_arena().gradients))
    transport.most = 70  # several chunks in a bucket
    return transport


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.policy)
@pytest.mark.parametrize("kind", ["staged", "device", "device-blocking"])
def test_nothing_is_sent_before_its_event_or_updated_before_its_message(world, schedule, kind):
    cupy = LazyCupy()
    if kind == "staged":
        transport = staged(world, cupy)
    else:
        transport = DeviceTransport(world.comm.Dup(), cupy, blocking=kind == "device-blocking")
    assert np.array_equal(run(world, transport, cupy, schedule), right(world))
    gc.collect()
    assert all(memory() is not None for memory in pinned[-1:]) or kind != "staged"
    assert len(cupy.cuda.used) == 1  # the comm thread's choice


class Hasty(StagedTransport):
    """Sends before the gradients' event."""

    def wait_for(self, mark):
        pass


class Careless(StagedTransport):
    """Sends before its copy to the host has ended."""

    def _down(self, array, part):
        super()._down(array, part)
        return self.mark()


class Impatient(StagedTransport):
    """Says that a message has ended before its copy to the device has."""

    def _arrived(self):
        pass


@pytest.mark.parametrize("broken", [Hasty, Careless, Impatient])
def test_a_transport_that_does_not_wait_is_found_out(world, broken):
    cupy = LazyCupy()
    assert not np.array_equal(run(world, staged(world, cupy, broken), cupy, SCHEDULES[0]), right(world))


class Wrong:
    """An MPI that takes device memory, and one of whose collectives does nothing."""

    def __init__(self, comm, broken):
        self.comm, self.broken = comm, broken

    def __getattr__(self, name):
        return (lambda *_: self.comm.Ibarrier()) if name == self.broken else getattr(self.comm, name)


COLLECTIVES = {"Iallreduce": "all-reduce", "Ireduce_scatter": "reduce-scatter", "Iallgatherv": "all-gather"}


@pytest.mark.parametrize("broken", [None, *COLLECTIVES])
def test_an_mpi_whose_device_sums_are_wrong_is_found_out_before_the_first_message(world, broken):
    transport = DeviceTransport(Wrong(world.comm.Dup(), broken), LazyCupy())
    assert transport.wrong_sums(1000) == COLLECTIVES.get(broken)


@pytest.mark.parametrize("kind", ["staged", "device"])
def test_a_rank_may_have_no_part_of_a_short_message(world, kind):
    cupy, elements = LazyCupy(), world.size - 1
    comm = world.comm.Dup()
    transport = StagedTransport(comm, cupy, elements) if kind == "staged" else DeviceTransport(comm, cupy)
    array = to_device(np.ones(elements, np.float32))
    transport.reduce_scatter(array)
    transport.all_gather(array)
    assert (to_host(array) == world.size).all()


@pytest.mark.skipif(MPI.COMM_WORLD.size > 2, reason="two ranks show it; each starts a process")
def test_device_memory_is_tried_before_it_is_trusted(world, monkeypatch):
    """In a process of its own, then among the ranks; auto goes on through the host and says why."""
    monkeypatch.setattr("mgwfbp.comm.transports.choose.cuda_support", lambda: True)
    monkeypatch.setattr("mgwfbp.comm.transports.choose.vendor", lambda: "MPICH")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'tests/stand_in'}{os.pathsep}{ROOT}")
    cupy = LazyCupy(2)
    transport = own_transport(world, 1000, cupy)
    assert (transport.name, transport.reason) == ("device", "MPICH says that it takes device memory")
    monkeypatch.setattr(DeviceTransport, "wrong_sums", lambda *_: "all-gather" if world.rank == 1 else None)
    transport = own_transport(world, 1000, cupy)
    assert transport.name == "staged"
    assert "memory, but rank 1: its all-gather of device memory gives other sums than the host's" in transport.reason
    with pytest.raises(SharedError, match="--transport device: rank 1: its all-gather .*; run with --transport staged"):
        own_transport(world, 1000, cupy, "device")
    dies = {"works": world.rank > 0, "error": "died"}
    monkeypatch.setattr("mgwfbp.comm.transports.open.device_check", lambda place: dies)
    transport = own_transport(world, 1000, cupy)
    assert (transport.name, transport.reason.partition(", but ")[2]) == ("staged", "rank 0: died")


@pytest.fixture
def a_gpu_each(world, monkeypatch):
    """CuPy and as many GPUs as ranks; what the host reads of the device is noted."""
    cupy = LazyCupy(world.size)
    for place in ("mgwfbp.kernels.choose", "mgwfbp.kernels.gpu.load", "mgwfbp.comm.gpus"):
        monkeypatch.setattr(f"{place}.find_spec", lambda name: object() if name == "cupy" else None)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cudnn", None)
    monkeypatch.setitem(sys.modules, "mgwfbp.kernels.gpu.launch", None)
    del sys.modules["mgwfbp.kernels.gpu.launch"]
    monkeypatch.setattr(cuda_on_host, "reads", [])
    monkeypatch.setattr(cuda_on_host, "started", nothing_in_the_default_stream)
    monkeypatch.setenv("CUPY_TF32", "0")
    monkeypatch.setattr("mgwfbp.kernels.choose._say_once", lambda text: None)
    _made.cache_clear()
    yield cupy
    _made.cache_clear()


@pytest.mark.skipif(MPI.COMM_WORLD.size > 2, reason="two ranks show it; make test has eight minutes")
@pytest.mark.parametrize(
    ("policy", "transport"),
    [("optimal", "staged"), ("pipelined", "staged"), ("sharded", "staged"), ("sharded", "device")],
)
def test_a_whole_run_on_the_stand_in_has_the_losses_of_numpy(
    world, shared_folder, monkeypatch, a_gpu_each, policy, transport
):
    """Everything but the card is real: the kernels' source, the set, the loop, the staged transport, checkpoints."""
    options = {"data": "synthetic:20x20x1x10", "batch_size": 4, "iterations": 12, "profile_iterations": 3, "lr": 0.005}
    options |= {"threads": 1, "replan": "never", "schedule": policy, "checkpoint_every": 6}
    cost, losses = AffineCost(1e-3, 1e-9), {}
    monkeypatch.setattr("mgwfbp.comm.transports.open.device_check", lambda place: {"works": True})
    for kernels in ("cupy", "numpy"):
        out = f"{shared_folder}/{kernels}"
        options["transport"] = transport if kernels == "cupy" else "auto"
        summary = train(Config("lenet", kernels=kernels, out=out, **options), world, cost)
        assert len(set(summary["parameters_sha256"])) == 1
        lines = [json.loads(line) for line in Path(out, "metrics.jsonl").read_text().splitlines()]
        losses[kernels] = [line["loss"] for line in lines if "iteration" in line]
    assert losses["cupy"] == pytest.approx(losses["numpy"], abs=1e-3)
    assert a_gpu_each.cuda.used[0] == world.local_rank
    # An iteration reads the loss, the right answers and whether all sums are finite; the rest are few.
    assert len(cuda_on_host.reads) < 12 * 3 + 20
