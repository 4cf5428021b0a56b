"""A process that trains again and again: no run leaves a thread, a communicator, an open file or memory behind.

As a notebook does, or a search for a learning rate: runs that end well, and runs that diverge.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.test_cli import MPIRUN, needs_mpirun, run

SCRIPT = """
import contextlib, gc, io, json, os, sys, threading
import mgwfbp as mg
from mgwfbp.comm import MPI

runs, folder = int(sys.argv[1]), sys.argv[2]
world, data = mg.World(), mg.load("synthetic:4x4x1x2")


@mg.model("tiny")
def tiny(input_shape, classes):
    net = mg.Net("tiny", input_shape)
    flat = net.add("flat", mg.layers.Flatten(), net.input)
    return net.finish(net.add("fc", mg.layers.Linear(classes), flat))


def communicators():
    '''How many MPI can still make: a few thousand in all, with MPICH.'''
    if "MPICH" not in MPI.get_vendor()[0]:
        return 0
    made = []
    with contextlib.suppress(MPI.Exception):
        while len(made) < 5000:
            made.append(MPI.COMM_SELF.Dup())
    for each in made:
        each.Free()
    return len(made)


def left():
    gc.collect()
    threads = [thread.name for thread in threading.enumerate()]
    resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return {"threads": threads, "tasks": len(os.listdir("/proc/self/task")), "files": len(os.listdir("/proc/self/fd")),
            "communicators": communicators(), "resident": resident}


def once(number):
    kind = number % 4
    if kind == 3:  # a learning rate at which it diverges: all ranks raise
        trainer = mg.Trainer(tiny((4, 4, 1), 2), data, mg.SGD(lr=1e38), batch_size=2, hooks=[mg.Watchdog(), mg.Stop()])
        with contextlib.suppress(mg.UserError):
            trainer.fit(1, 20)
            raise AssertionError("it did not diverge")
    elif kind == 2:
        mg.run(mg.Config("tiny", data="synthetic:4x4x1x2", batch_size=2, iterations=3, lr=0.01, threads=1,
                         out=folder, overwrite=True, checkpoint_every=2), world)
    elif kind == 1:
        with mg.exchange(world, tiny((4, 4, 1), 2), mg.SGD(lr=0.1), "wfbp") as exchange:
            for batch in mg.batches(data, 4, epochs=1, iterations=2, rank=world.rank, ranks=world.size):
                mg.train_step(exchange.net, exchange, batch)
    else:
        mg.Trainer(tiny((4, 4, 1), 2), data, mg.SGD(lr=0.01), batch_size=2, hooks=[mg.Watchdog()]).fit(1, 3)


with contextlib.redirect_stdout(io.StringIO()):
    for number in range(8):
        once(number)
    first = left()
    for number in range(8, runs):
        once(number)
    last = left()
sys.stdout.write(json.dumps([first, last]) + "\\n")
"""


@needs_mpirun
@pytest.mark.all
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")
@pytest.mark.parametrize("ranks", [1, 2])
def test_two_hundred_runs_leave_nothing_behind(tmp_path, ranks):
    (tmp_path / "again.py").write_text(SCRIPT)
    done = run(MPIRUN, "-n", ranks, sys.executable, "again.py", 200, tmp_path / "run", cwd=tmp_path, seconds=240)
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(reports) == ranks
    for first, last in reports:
        assert last.pop("resident") - first.pop("resident") < 50  # MB
        assert last == first
        assert last["threads"] == ["MainThread"]
