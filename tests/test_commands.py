"""Every command and every piece of code in README and docs that a reader would copy is run, as it stands there.

The commands of a page run in one folder, one after the other, made small by MGWFBP_* variables. What cannot be run here
is listed with where it is tried instead; a line that is neither run nor listed is a failure.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.test_cli import BIN, MPIRUN, needs_mpirun, run

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "jobs" / "README.md"]
PROGRAMS = r"(?:\$ |sudo )*(?:\.venv/bin/)?(?:mgwfbp|mpirun|python|bash|make|pip|sbatch|srun|module|export|\.)(?= )"
ELSEWHERE = {  # what is not run here, and why
    r"make (train|test|test-all)\b": ".ci/run runs them",
    r"(sbatch|srun) ": "tests/test_slurm.py submits them to a real Slurm",
    r"(module load|export|pip install|python -m venv|\. \.venv/bin/activate|python -c)": "changes the reader's shell",
    r"mpirun --bind-to none": "Open MPI's option, which MPICH refuses; the command behind it is run",
    r"(sudo )?(\.venv/bin/)?(mpirun -n 2 )?(python benchmarks/|bash jobs/gpu_check\.sh)": "minutes of measurement",
    r"python -m tests\.soak": "100 runs and 20 kills, by hand",
    r"mgwfbp +\d": "what a run prints first, its version, and rows of tables",
}
SMALL = {
    "MGWFBP_ITERATIONS": "3",
    "MGWFBP_PROFILE_ITERATIONS": "2",
    "MGWFBP_BATCH_SIZE": "2",
    "MGWFBP_ROUNDS": "1",
    "MGWFBP_TRIALS": "10",
    "MGWFBP_LARGEST": "64kB",
    "MGWFBP_THREADS": "1",
    "MGWFBP_REPLAN": "never",
}


def code(page):
    """The pieces of Python on a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


def commands(page):
    """The lines of a page's examples that begin with a program, without the comment behind them."""
    lines = re.findall(rf"^    ({PROGRAMS}.*)$", page.read_text("utf-8"), re.MULTILINE)
    return [re.sub(r" {2,}#.*$| # .*$", "", line.removeprefix("$ ")).strip() for line in lines]


def pieces(ranks):
    return [
        pytest.param(text, n, id=f"{page.stem}-{i}-{n}")
        for page in PAGES
        for i, text in enumerate(code(page))
        for n in ranks
    ]


@needs_mpirun
@pytest.mark.parametrize(("text", "ranks"), pieces((1, 2)))
def test_code_runs_alone_and_on_two_ranks(tmp_path, text, ranks):
    (tmp_path / "mine.py").write_text(text)
    start = [MPIRUN, "-n", ranks] if ranks > 1 else []
    done = run(*start, sys.executable, "mine.py", cwd=tmp_path, seconds=90)
    assert done.returncode == 0, done.stderr


def test_every_line_is_run_or_listed():
    assert len(commands(PAGES[0])) > 25
    for page in PAGES:
        for line in commands(page):
            listed = any(re.match(pattern, line) for pattern in ELSEWHERE)
            assert listed or re.match(r"(\.venv/bin/)?mgwfbp |mpirun -n \d mgwfbp |python jobs/", line), (
                page.name,
                line,
            )


def cifar10(folder):
    rng = np.random.default_rng(0)
    for name in [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]:
        rows = rng.integers(0, 256, (20, 3073), dtype=np.uint8)
        rows[:, 0] %= 10
        (folder / name).write_bytes(rows.tobytes())


def images(folder):
    image = pytest.importorskip("PIL.Image", reason="Pillow, which makes images, is not installed")
    for part in ("train", "val"):
        for name in ("cat", "dog"):
            (folder / part / name).mkdir(parents=True)
            for number in range(4):
                image.new("RGB", (260, 240), (40 * number, 90, 200)).save(folder / part / name / f"{number}.jpg")


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with what a reader has: the clone's examples and jobs, a run of `make train`, data, somebody's log."""
    folder = tmp_path_factory.mktemp("desk")
    for name in ("examples", "jobs"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").mkdir()
    (folder / ".venv/bin").symlink_to(BIN)
    (folder / "FOLDER").mkdir()
    cifar10(folder / "FOLDER")
    images(folder / "FOLDER")
    log = next(iter(sorted((ROOT.parent / "shared/data/bcaffe-k80").glob("*comm*.log"))), None)
    if log is not None:
        (folder / "tmp8comm.log").write_bytes(log.read_bytes())
    train = [MPIRUN, "-n", 2, BIN / "mgwfbp", "train", "lenet", "--data", "synthetic:28x28x1x10", "--out", "runs/lenet"]
    assert run(*train, cwd=folder, **{**SMALL, "MGWFBP_ITERATIONS": "6"}).returncode == 0
    return folder


@pytest.mark.all
@needs_mpirun
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_run_as_they_stand(desk, page):
    if "images64" not in os.listdir(desk):
        assert run(sys.executable, "jobs/make_images.py", "images64", cwd=desk).returncode == 0
    small, longer = dict(SMALL), 0
    for line in dict.fromkeys(commands(page)):
        if any(re.match(pattern, line) for pattern in ELSEWHERE):
            continue
        if "tmp8comm.log" in line and not (desk / "tmp8comm.log").exists():
            continue  # the public trace is not in a reader's clone
        if re.search(r"--resume runs/", line):  # more iterations than there were
            longer += 3
            small["MGWFBP_ITERATIONS"] = str(6 + longer)
        else:
            small["MGWFBP_ITERATIONS"] = SMALL["MGWFBP_ITERATIONS"]
        words = shlex.split(line)
        path = f"{BIN}:{os.environ['PATH']}"
        done = subprocess.run(
            words, cwd=desk, capture_output=True, text=True, timeout=200, env={**os.environ, **small, "PATH": path}
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
