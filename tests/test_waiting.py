"""Ranks that wait: what they say of where they stand, from the start of MPI on, and who waits for whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback

import pytest

from mgwfbp.comm import Watch
from mgwfbp.comm.waiting import IDLE, place
from tests.test_cli import MGWFBP, MPIRUN, needs_mpirun, run


def said(command, *texts, seconds=40, cwd=None, **environment):
    """What a job said on stderr until all of `texts` were in it; then the job is ended. It would wait for ever."""
    job = subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    watchman = threading.Timer(seconds, lambda: os.killpg(job.pid, signal.SIGKILL))
    watchman.start()
    found = ""
    try:
        for line in job.stderr:
            found += line
            if all(text in found for text in texts):
                return found
    finally:
        watchman.cancel()
        os.killpg(job.pid, signal.SIGTERM)
        job.communicate(timeout=20)
    raise AssertionError(f"{texts} did not come in {seconds} s, but {found!r}")


@needs_mpirun
def test_a_rank_that_waits_for_mpi_to_start_says_so():
    """One of the two runs a command that never starts MPI."""
    plan = [MGWFBP, "plan", "k80-googlenet", "--network", "k80-10gbe:64"]
    train = [MGWFBP, "train", "mlp", "--data", "synthetic:28x28x1x10"]
    for ranks in ([plan, train], [train, plan]):
        command = [MPIRUN, "-n", "1", *ranks[0], ":", "-n", "1", *ranks[1]]
        late = ranks.index(train)
        text = said(command, "in MPI_Init for ranks that do not start MPI", MGWFBP_STALL_WARN="1")
        assert f"rank {late} of 2 (by PMI_RANK) on " in text


LATE = """
import sys, time
from mgwfbp.comm import World
from mgwfbp.comm.mpi import MPI, start
start()
where = sys.argv[1]
if MPI.COMM_WORLD.rank == 1 and where == "world":
    time.sleep(100)
world = World()
with world.together():
    if world.rank == 1:
        time.sleep(100)
"""


@needs_mpirun
@pytest.mark.parametrize(
    ("where", "line"), [("world", "in <module>: world = World()"), ("body", "in <module>: with world.together():")]
)
def test_a_rank_that_waits_for_the_first_messages_says_so(tmp_path, where, line):
    (tmp_path / "late.py").write_text(LATE)
    command = [MPIRUN, "-n", "2", sys.executable, "late.py", where]
    text = said(command, "the main thread waits for other ranks at ", cwd=tmp_path, MGWFBP_STALL_WARN="1")
    assert "rank 0 on " in text
    assert line in text
    assert "late.py:" in text


WATCHED = """
import sys, time
import mgwfbp as mg
world, dog = mg.World(), mg.Watchdog(0.5, 1)
with dog.watching(world):
    with world.together():
        if world.rank == 1:
            time.sleep(100)
"""


@needs_mpirun
def test_the_start_of_a_run_is_watched_but_may_take_longer(tmp_path):
    (tmp_path / "watched.py").write_text(WATCHED)
    start = time.monotonic()
    done = run(MPIRUN, "-n", 2, sys.executable, "watched.py", cwd=tmp_path)
    assert time.monotonic() - start > 4
    assert done.returncode != 0
    assert "in <module>: time.sleep(100); if other ranks wait, they wait for this one" in done.stderr
    assert "nothing for 4 s, the whole job ends" in done.stderr


HANG = """
import os, time
import mgwfbp as mg

@mg.dataset("hang")
def hang(rest, source):
    if os.environ["PMI_RANK"] == "1":
        time.sleep(100)
    return mg.load("synthetic:28x28x1x10")
"""


@needs_mpirun
def test_a_rank_that_hangs_while_it_reads_data_is_named_and_ends_the_job(tmp_path):
    (tmp_path / "hang.py").write_text(HANG)
    limits = ["--stall-warn", "0.5", "--stall-abort", "1"]
    command = ["train", "mlp", "--plugin", "hang.py", "--data", "hang:x", "--out", "run", *limits]
    done = run(MPIRUN, "-n", 2, MGWFBP, *command, cwd=tmp_path)
    assert done.returncode != 0
    assert "in hang: time.sleep(100); if other ranks wait, they wait for this one" in done.stderr
    assert "the main thread waits for other ranks at " in done.stderr
    assert "in same_start: with world.together():" in done.stderr


def test_a_line_of_ones_own_is_shown_before_that_of_a_library():
    event, stacks = threading.Event(), []
    thread = threading.Thread(target=lambda: event.wait(20))  # the line of interest
    thread.start()
    while not stacks or stacks[-1][-1].name != "wait":
        stacks.append(traceback.extract_stack(sys._current_frames()[thread.ident]))
    event.set()
    thread.join()
    text, waits = place(stacks[-1])
    assert f"{__file__}:" in text
    assert text.endswith("# the line of interest")
    assert not waits
    assert place([]) == ("its end", False)


def test_of_two_watches_one_speaks(capfd):
    with Watch(0, 2, 0.2, doing=lambda: IDLE), Watch(0, 2, 0.2):
        time.sleep(0.7)
    text = capfd.readouterr().err
    assert text.count("nothing for") == text.count(IDLE) >= 1
    assert "test_waiting.py" in text
    assert not [thread for thread in threading.enumerate() if thread.name == "watchdog"]


def test_a_beat_or_an_end_keeps_it_quiet(capfd):
    with Watch(0, 1, 0.4) as watch:
        for _ in range(6):
            time.sleep(0.1)
            watch.beat()
    time.sleep(0.5)
    with Watch(0, 1, 0):
        time.sleep(0.1)
    assert capfd.readouterr().err == ""
