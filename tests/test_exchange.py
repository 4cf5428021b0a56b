"""A loop of one's own that leaves a call out is told which one, on one rank as on two."""

from __future__ import annotations

import sys

import pytest

from tests.test_cli import MPIRUN, needs_mpirun, run

LOOP = """
import sys
import mgwfbp as mg

mode, without = sys.argv[1:]
world, data = mg.World(), mg.load("synthetic:8x8x1x10")
net = mg.models.mlp(data.shape, data.classes)
buckets = mg.schedule_from_cuts("mine", [0, 1], 3).buckets
with mg.exchange(world, net, mg.SGD(lr=0.01), mg.Schedule("mine", buckets, mode)) as exchange:
    for batch in mg.batches(data, 64, epochs=1, iterations=3, rank=world.rank, ranks=world.size):
        before_layer = None if without == "before_layer" else exchange.before_layer
        net.forward(*batch.load(), batch.step, batch.size, before_layer)
        exchange.begin()
        net.backward(exchange.gradient_ready)
        if without != "finish":
            exchange.finish()
print("trained")
"""
CASES = [
    ("all-reduce", "finish", "begin: finish() was not called"),
    ("all-reduce", "before_layer", None),  # nothing is on its way there
    ("pipelined", "finish", "begin: finish() was not called"),
    ("pipelined", "before_layer", "begin: forward was not given before_layer"),
    ("sharded", "finish", "begin: finish() was not called"),
    ("sharded", "before_layer", "begin: forward was not given before_layer"),
    ("sharded", "nothing", None),
]


@needs_mpirun
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(("mode", "without", "says"), CASES)
def test_a_call_that_is_missing_is_named(tmp_path, mode, without, says, ranks):
    (tmp_path / "loop.py").write_text(LOOP)
    done = run(MPIRUN, "-n", ranks, sys.executable, tmp_path / "loop.py", mode, without)
    if says is None:
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("trained") == ranks
    else:
        assert done.returncode != 0
        assert says in done.stderr
