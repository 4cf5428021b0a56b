"""Faults on real ranks: who fails, stalls, is signalled or computes nonsense, and what everyone sees of it.

Every run is a real mpirun with a deadline; the faults come from MGWFBP_FAULT, from signals, or from the user's script.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.test_cli import MGWFBP, MPIRUN, mistake, needs_mpirun, run

pytestmark = needs_mpirun

TRAIN = [MGWFBP, "train", "mlp", "--data", "synthetic:28x28x1x10", "--lr", "0.005", "--profile-iterations", "3"]
TRAIN += ["--batch-size", "4", "--threads", "1", "--replan", "never"]


def train(folder, *options, ranks=2, seconds=60, fault="", **environment):
    command = [MPIRUN, "-n", ranks, *TRAIN, "--out", folder / "run", *options]
    return run(*command, seconds=seconds, cwd=folder, MGWFBP_FAULT=fault, **environment)


def lines(folder):
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def alive(marker):
    """Processes whose command line has `marker` in it."""
    found = subprocess.run(["pgrep", "-f", str(marker)], capture_output=True, text=True, check=False).stdout.split()
    return [pid for pid in found if int(pid) != os.getpid()]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("raise", "rank 1 on "),
        ("exit", "rank 1 on "),
        ("kill", ""),
    ],
)
def test_one_rank_that_fails_ends_all_in_seconds(tmp_path, kind, says):
    start = time.monotonic()
    done = train(tmp_path, "--epochs", "50", fault=f"rank=1,iteration=5,kind={kind}")
    assert done.returncode != 0
    assert time.monotonic() - start < 20
    assert says in done.stderr
    if kind == "raise":
        assert done.stderr.count("Traceback") == 1
        assert "fault on purpose (MGWFBP_FAULT) in iteration 5" in done.stderr
    time.sleep(0.5)
    assert not alive(tmp_path)


def test_a_rank_that_stalls_is_reported_by_all_and_ends_the_job(tmp_path):
    done = train(
        tmp_path, "--epochs", "50", "--stall-warn", "1", "--stall-abort", "3", fault="rank=1,iteration=6,kind=stall"
    )
    assert done.returncode != 0
    assert "rank 1 on " in done.stderr
    # Of the one that stalls, before its forward: its own line, not the one of Python's where it waits.
    (stalls,) = [line for line in done.stderr.splitlines() if "rank 1 on" in line and "nothing for 1 s" in line]
    assert "fault.py:" in stalls
    assert "in strike: threading.Event().wait(); if other ranks wait, they wait for this one" in stalls
    # Of the one that waits for it.
    (waits,) = [line for line in done.stderr.splitlines() if "rank 0 on" in line and "nothing for 1 s" in line]
    assert "this rank has sent bucket 0 (layers 0 to " in waits
    assert ") and waits for ranks that have not; the main thread waits for other ranks at " in waits
    assert "exchange.py:" in waits
    assert "the whole job ends" in done.stderr


def test_a_short_delay_is_no_stall(tmp_path):
    done = train(tmp_path, "--iterations", "8", "--stall-warn", "30", fault="rank=0,iteration=4,kind=delay:1s")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_nan_stops_all_ranks_with_rank_iteration_and_layer(tmp_path):
    done = train(tmp_path, "--iterations", "12", fault="rank=1,iteration=7,kind=nan")
    text = mistake(done, "iteration 7: the loss of rank 1 is nan, its gradients from layer")
    assert "--on-nan skip" in text


def test_nan_skipped_changes_nothing_and_the_run_goes_on(tmp_path):
    done = train(tmp_path, "--iterations", "12", "--on-nan", "skip", fault="rank=1,iteration=7,kind=nan")
    assert done.returncode == 0, done.stderr
    assert "iteration 7: the loss of rank 1 is nan" in done.stdout
    assert "skipped, nothing was changed" in done.stdout
    losses = [line["loss"] for line in lines(tmp_path) if "iteration" in line]
    assert [number + 1 for number, loss in enumerate(losses) if loss is None] == [7]
    assert "parameters           equal on all 2 ranks" in done.stdout


def test_a_signal_to_one_rank_stops_all_with_a_checkpoint_and_the_run_goes_on_from_it(tmp_path):
    """SIGTERM here; SIGUSR1 in tests/test_slurm.py."""
    number = signal.SIGTERM
    whole = run(MPIRUN, "-n", 2, *TRAIN, "--iterations", "400", "--out", tmp_path / "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    command = [MPIRUN, "-n", "2", *TRAIN, "--iterations", "400", "--out", str(tmp_path / "run")]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    for line in job.stdout:
        if "iteration  20/400" in line:
            break
    ranks = [pid for pid in alive(f"python.*{tmp_path}/run") if "mpirun" not in Path(f"/proc/{pid}/comm").read_text()]
    children = [pid for pid in ranks if "hydra" not in Path(f"/proc/{pid}/cmdline").read_text()]
    for _ in range(2):  # Slurm signals the ranks, and the launcher passes on what it got itself
        os.kill(int(children[-1]), number)
        time.sleep(0.2)
    _, errors = job.communicate(timeout=30)
    assert job.returncode == 75, errors
    assert f"{number.name}: stopped after iteration" in errors
    resumed = run(*command, "--resume", "auto", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed after iteration" in resumed.stdout
    ends = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("whole", "run")]
    assert ends[0]["parameters_sha256"] == ends[1]["parameters_sha256"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_ctrl_c_is_a_stop_with_a_checkpoint(tmp_path, ranks):
    start = [MPIRUN, "-n", str(ranks)] if ranks > 1 else []
    command = [*start, *TRAIN, "--epochs", "40", "--out", str(tmp_path / "run")]
    job = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True
    )
    for line in job.stdout:
        if line.startswith("iteration"):
            break
    os.killpg(job.pid, signal.SIGINT)  # as a terminal does: to all in the foreground
    _, errors = job.communicate(timeout=30)
    assert "stopping after this iteration; Ctrl-C again ends at once" in errors
    assert "SIGINT: stopped after iteration" in errors
    assert job.returncode == 75 or ranks > 1  # MPICH's launcher leaves with a code of its own
    assert list((tmp_path / "run" / "checkpoints").iterdir())
    for name in ("workload.json", "schedule.json"):
        assert json.loads((tmp_path / "run" / name).read_text())


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("rank=1,iteration=3", "kind missing"),
        ("rank=1,iteration=3,kind=burn", "kind must be raise, exit"),
        ("rank=one,iteration=3,kind=kill", "rank must be a whole number"),
        ("rank=5,iteration=3,kind=kill", "there is no rank 5, the ranks are 0 to 1"),
        ("rank=1,iteration=3,kind=delay:soon", "is no time"),
        ("nonsense", "not of the form KEY=VALUE"),
    ],
)
def test_a_fault_that_is_none_is_one_line(tmp_path, fault, says):
    mistake(train(tmp_path, "--iterations", "2", fault=fault), says)


SCRIPT = """
import sys
from mgwfbp.runs.config import Config
from mgwfbp.runs.start import train
from mgwfbp.comm import World
world = World()
if world.rank == 1 and sys.argv[1] == "before":
    raise RuntimeError("mine")
if world.rank == 1 and sys.argv[1] == "memory":
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))
    bytearray(2**34)
train(Config("mlp", data="synthetic:28x28x1x10", iterations=4, threads=1, out=sys.argv[2]), world)
if world.rank == 1:
    if sys.argv[1] == "exit":
        sys.exit(3)
    raise RuntimeError("mine")
world.comm.Barrier()
"""


@pytest.mark.parametrize("where", ["before", "after", "exit", "memory"])
def test_a_script_of_ones_own_that_fails_on_one_rank_ends_too(tmp_path, where):
    (tmp_path / "mine.py").write_text(SCRIPT)
    start = time.monotonic()
    done = run(MPIRUN, "-n", 2, sys.executable, "mine.py", where, tmp_path / "run", cwd=tmp_path, seconds=40)
    assert done.returncode != 0
    assert time.monotonic() - start < 30
    assert "rank 1 on " in done.stderr
    if where != "exit":
        assert ("MemoryError" if where == "memory" else "RuntimeError: mine") in done.stderr


IN_BACKWARD = """
import time
import mgwfbp as mg

class Stalls(mg.layers.ReLU):
    def backward_input(self, dy):
        if trainer.done == 4 and trainer.world.rank == 1:
            time.sleep(100)
        return super().backward_input(dy)

net = mg.models.mlp()
for layer in net.layers:
    if isinstance(layer, mg.layers.ReLU):
        layer.__class__ = Stalls
data = mg.load("synthetic:28x28x1x10")
trainer = mg.Trainer(net, data, mg.SGD(lr=0.005), batch_size=4, schedule="wfbp", hooks=[mg.Watchdog(1, 3)])
trainer.fit(epochs=1)
"""


def test_a_rank_that_stalls_in_backward_is_the_one_that_has_not_sent(tmp_path):
    (tmp_path / "mine.py").write_text(IN_BACKWARD)
    done = run(MPIRUN, "-n", 2, sys.executable, "mine.py", cwd=tmp_path)
    assert done.returncode != 0
    assert "this rank has not sent bucket 1 (layers 1 to 1) yet: it is the one that the others wait for" in done.stderr
    assert "in backward_input: time.sleep(100)" in done.stderr
    assert "this rank has sent bucket 1 (layers 1 to 1) and waits for ranks that have not" in done.stderr


LEAVES = """
import os, sys, threading, time
from mgwfbp.comm import World
world, how = World(), sys.argv[1]
if world.rank == 1:
    if how == "caught":
        try:
            sys.exit(3)
        except SystemExit:
            pass
    if how == "thread":
        thread = threading.Thread(target=sys.exit, args=(3,))
        thread.start()
        thread.join()
    if how == "zero":
        sys.exit(0)
    if how == "finally":
        try:
            sys.exit(3)
        finally:
            time.sleep(1)
else:
    time.sleep(8)
sys.stdout.write("the end\\n")
"""


@pytest.mark.parametrize(
    "how", ["caught", *(pytest.param(how, marks=pytest.mark.all) for how in ("thread", "zero", "no"))]
)
def test_a_rank_that_is_done_well_waits_for_the_others(tmp_path, how):
    """A sys.exit that the script caught, or that ended another thread, is none; and there is no time limit."""
    (tmp_path / "leaves.py").write_text(LEAVES)
    done = run(MPIRUN, "-n", 2, sys.executable, "leaves.py", how, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the end") == (1 if how == "zero" else 2)
    assert done.stderr.count("rank 1 on ") == 1
    assert "is done and waits for ranks that are not; MGWFBP_EXIT_S=60 would end the job" in done.stderr


def test_a_rank_that_is_done_waits_as_long_as_it_is_told(tmp_path):
    (tmp_path / "leaves.py").write_text(LEAVES)
    command = [MPIRUN, "-n", 2, sys.executable, "leaves.py"]
    done = run(*command, "no", cwd=tmp_path, MGWFBP_EXIT_S="1.5")
    assert done.returncode != 0
    assert "waited 1.5 s (MGWFBP_EXIT_S) for ranks that are not; the whole job ends" in done.stderr
    mistake(run(*command, "no", cwd=tmp_path, MGWFBP_EXIT_S="soon"), "must be a number of seconds above 0")
    done = run(*command, "finally", cwd=tmp_path)  # no limit, but an exit with a code that nobody caught
    assert done.returncode == 3
    assert "left by sys.exit(3); the whole job ends" in done.stderr


def test_an_image_that_one_ranks_loader_cannot_decode_ends_all_with_its_name(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow, which decodes images, is not installed")
    for part in ("train", "val"):
        for name in ("a", "b"):
            (tmp_path / "data" / part / name).mkdir(parents=True)
            for number in range(4):
                image.new("RGB", (40, 40), (50 * number, 9, 9)).save(tmp_path / f"data/{part}/{name}/{number}.jpg")
    (tmp_path / "data/train/b/2.jpg").write_bytes(b"no image")
    command = ["train", "mlp", "--data", "images:28", "--data-dir", "data", "--batch-size", "2", "--threads", "1"]
    done = run(MPIRUN, "-n", 2, MGWFBP, *command, "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "b/2.jpg: cannot be decoded" in done.stderr  # by the rank that met it; the launcher may add a line
    assert "Traceback" not in done.stderr
    skipped = run(MPIRUN, "-n", 2, MGWFBP, *command, "--on-bad-image", "skip", "--out", "run2", cwd=tmp_path)
    assert skipped.returncode == 0, skipped.stderr


LIMITED = """
import resource
from mgwfbp.comm import World
World(command="train")
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))  # bytes a file: the end of a full disk
from mgwfbp.cli.main import main
main()
"""


def test_a_checkpoint_that_does_not_fit_stops_all_and_leaves_no_half_of_it(tmp_path):
    (tmp_path / "limited.py").write_text(LIMITED)
    limited = [MPIRUN, "-n", "2", sys.executable, "limited.py"]
    options = ["--iterations", "8", "--checkpoint-every", "4", "--out", tmp_path / "run"]
    done = run(*limited, *TRAIN[1:], *options, cwd=tmp_path)
    mistake(done, "iteration-00000004: cannot be written (")
    assert not list((tmp_path / "run" / "checkpoints").iterdir())
    resumed = run(MPIRUN, "-n", "2", *TRAIN, *options, "--resume", "auto", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr


@needs_mpirun
def test_of_two_jobs_with_one_run_folder_one_gets_it(tmp_path):
    """Both at the same moment, as two submissions of one script; the lock dies with its job."""
    command = [*TRAIN, "--epochs", "40", "--out", str(tmp_path / "run"), "--overwrite", "--threads", "1"]
    jobs = [subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    codes = {}
    while not codes:
        codes = {place: job.poll() for place, job in enumerate(jobs) if job.poll() is not None}
        time.sleep(0.05)
    (loser,) = codes
    assert codes[loser] == 2
    assert "another run is writing into it" in jobs[loser].stderr.read()
    jobs[1 - loser].send_signal(signal.SIGKILL)
    jobs[1 - loser].wait()
    done = run(*TRAIN, "--iterations", "3", "--out", tmp_path / "run", "--overwrite")
    assert done.returncode == 0, done.stderr
