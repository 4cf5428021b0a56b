"""jobs/gpu_check.sh, which is for people with a card, on the stand-in for one: it must not fail for what is ours."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.test_cli import needs_mpirun

ROOT = Path(__file__).resolve().parents[1]
STAND_IN = f"{ROOT / 'tests/stand_in'}{os.pathsep}{ROOT}"


def check(out, *options, **environment):
    own = {**os.environ, "PYTHON": sys.executable, **environment}
    command = ["bash", ROOT / "jobs/gpu_check.sh", "--out", out, *options]
    return subprocess.run(list(map(str, command)), env=own, capture_output=True, text=True, timeout=300)


def test_without_a_card_it_says_so(tmp_path):
    done = check(tmp_path / "out.json")
    assert (done.returncode, done.stdout) == (0, "skipped: CuPy is not installed\n"), done.stderr


@pytest.mark.all
@needs_mpirun
def test_every_part_is_reported_even_if_others_fail(tmp_path):
    out = tmp_path / "out.json"
    done = check(out, "--parts", "doctor,bandwidth,losses,messages,events", PYTHONPATH=STAND_IN)
    found = json.loads(out.read_text())
    rows = found["parts"]
    assert done.returncode == 1, done.stdout + done.stderr
    works = {"losses, optimal", "losses, pipelined", "losses, sharded", "losses, tf32", "events"}
    assert works | {"messages, staged", "messages, device"} <= {name for name, row in rows.items() if row["ok"]}, rows
    assert "a bare copy, all-reduce and copy in sequence" in rows["bandwidth"]["result"]
    assert "cuDNN cannot be used" in rows["doctor"]["result"]
    assert found["installed"]["mgwfbp"]
    assert len(done.stdout.splitlines()) == 1 + len(rows) + 1


@pytest.mark.all
def test_a_part_that_takes_too_long_is_ended_and_the_next_ones_are_told_so(tmp_path):
    out = tmp_path / "out.json"
    done = check(out, "--parts", "steps", "--seconds", 12, PYTHONPATH=STAND_IN)  # on the host it would take minutes
    rows = json.loads(out.read_text())["parts"]
    assert done.returncode == 1, done.stderr
    assert rows["steps, resnet50"]["result"].startswith("stopped after its ")
    assert rows["steps, resnet50, tf32"]["result"] == "not run: no time was left"


@pytest.mark.all
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_who_ends_it_ends_its_parts_and_their_ranks(tmp_path, how):
    own = {**os.environ, "PYTHONPATH": STAND_IN}
    command = [sys.executable, ROOT / "benchmarks/gpu_check.py", "--parts", "steps", "--out", tmp_path / "out.json"]
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731  in the background a shell turns it off
    process = subprocess.Popen(
        list(map(str, command)), env=own, stdout=subprocess.PIPE, start_new_session=True, preexec_fn=heard
    )
    children: list[str] = []
    try:
        process.stdout.readline()  # the cards
        deadline = time.monotonic() + 20
        while not children:
            assert time.monotonic() < deadline
            time.sleep(0.1)
            listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
            children = listed.stdout.split()
        process.send_signal(how)
        assert process.wait(20) != 0
        assert not any(Path("/proc", child).exists() for child in children)
    finally:
        process.kill()
        for child in filter(lambda pid: Path("/proc", pid).exists(), children):
            os.killpg(int(child), signal.SIGKILL)


@pytest.mark.all
def test_a_part_that_dies_is_one_of_the_rows(tmp_path):
    (tmp_path / "cupy.py").write_text(
        "import os, sys\nfrom tests.streams_on_host import in_place_of_cupy\nmade = in_place_of_cupy()\n"
        "made.zeros = lambda *_, **__: os.kill(os.getpid(), 11)\nsys.modules['cupy'] = made\n"
    )
    out, path = tmp_path / "out.json", f"{tmp_path}{os.pathsep}{ROOT}"
    check(out, "--parts", "events", PYTHONPATH=path)
    assert json.loads(out.read_text())["parts"]["events"]["returncode"] == -11
