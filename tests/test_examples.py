"""Every example runs, alone and on two ranks, in an empty folder that is not the repository."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.test_cli import MGWFBP, MPIRUN, needs_mpirun, run

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))
names = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


def output(tmp_path, example, ranks):
    shutil.copy(example, tmp_path)
    start = [MPIRUN, "-n", ranks] if ranks > 1 else []
    done = run(*start, sys.executable, example.name, cwd=tmp_path, seconds=60)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == [example.name]
    return done.stdout


@names
def test_it_is_short_and_says_how_it_is_started(example):
    text = example.read_text()
    assert len(text.splitlines()) <= 40
    assert f"mpirun -n 2 python {example.name}" in text


@needs_mpirun
@names
def test_it_runs_alone_and_on_two_ranks(tmp_path, example):
    for ranks in (1, 2):
        printed = output(tmp_path, example, ranks)
        found = re.findall(r"accuracy (\d\.\d+)", printed)
        assert float(found[-1]) > 0.5, printed  # of ten classes at most: it learns
        assert len(found) == 1  # only one rank speaks
    for wrong in ("equal weights: False", "2 sets", "3 set"):
        assert wrong not in printed


def test_the_checks_in_the_examples_say_what_they_should(tmp_path):
    by_name = {path.stem: path for path in EXAMPLES}
    assert float(re.search(r"gradient: (\S+)", output(tmp_path, by_name["own_layer"], 1))[1]) < 1e-7


@needs_mpirun
@pytest.mark.parametrize(
    ("example", "command", "says"),
    [
        ("own_layer", ["train", "swishnet", "--data", "synthetic:8x8x1x4"], "swishnet: "),
        ("own_policy", ["train", "mlp", "--data", "synthetic:8x8x1x4", "--schedule", "thirds"], "schedule thirds: "),
        ("own_data", ["train", "mlp", "--data", "stripes:8"], "stripes:8"),
        ("own_optimizer", ["train", "mlp", "--data", "synthetic:8x8x1x4", "--optimizer", "lion:beta2=0.98"], "mlp: "),
        ("own_model", ["train", "twoways", "--data", "synthetic:8x8x3x4"], "twoways: "),
        ("own_transport", ["train", "mlp", "--data", "synthetic:8x8x1x4", "--transport", "ring"], "mlp: "),
    ],
)
def test_it_is_a_plugin_of_the_command_line(tmp_path, example, command, says):
    shutil.copy(EXAMPLES[0].parent / f"{example}.py", tmp_path)
    options = ["--plugin", f"{example}.py", "--iterations", "8", "--profile-iterations", "2", "--threads", "1"]
    done = run(MPIRUN, "-n", 2, MGWFBP, *command, *options, "--out", "run", cwd=tmp_path, seconds=60)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
    assert "equal on all 2 ranks" in done.stdout


def test_a_config_file_names_its_plugin(tmp_path):
    shutil.copy(EXAMPLES[0].parent / "own_model.py", tmp_path)
    (tmp_path / "mine.toml").write_text(
        'plugin = ["own_model.py"]\ndata = "synthetic:8x8x3x4"\niterations = 2\nthreads = 1\n'
    )
    done = run(MGWFBP, "train", "twoways", "--config", "mine.toml", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "twoways: " in done.stdout


def test_a_policy_of_ones_own_on_paper(tmp_path):
    command = ["plan", "k80-googlenet", "--network", "k80-10gbe:64", "--schedule", "thirds"]
    done = run(MGWFBP, *command, "--plugin", EXAMPLES[0].parent / "own_policy.py", cwd=tmp_path)
    assert re.search(r"thirds +3 +409\.498", done.stdout)


def test_a_model_of_ones_own_is_timed_by_the_processes_that_bench_step_starts(tmp_path):
    command = ["bench", "step", "twoways", "--batch-size", "2", "--rounds", "1"]
    done = run(
        MPIRUN or "env",
        *(["-n", 1] if MPIRUN else []),
        MGWFBP,
        *command,
        "--plugin",
        EXAMPLES[0].parent / "own_model.py",
    )
    assert done.returncode == 0, done.stderr
    assert "twoways, batch 2" in done.stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "plugin mine.py: there is no such file"),
        (
            "import mgwfbp as mg\n\nmg.polici\n",
            "plugin mine.py, line 3: AttributeError: module 'mgwfbp' has no attribute",
        ),
        ("x = (\n", "plugin mine.py, line 1: SyntaxError"),
    ],
)
def test_a_plugin_that_cannot_be_run_is_a_mistake_in_one_line(tmp_path, text, says):
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    done = run(MGWFBP, "plan", "k80-googlenet", "--network", "a=1ms,b=1ns", "--plugin", "mine.py", cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
