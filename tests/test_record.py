"""What a run says and keeps while it goes on: lines, header, bounded figures, files written when they are made."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest

from mgwfbp.runs.config import Config
from mgwfbp.schedule.measured import Figures, Sample
from mgwfbp.train.gradients import all_finite
from tests.test_cli import MGWFBP, MPIRUN, SMALL, mistake, needs_mpirun, run


def test_a_run_of_millions_of_iterations_keeps_a_bounded_sample():
    sample, values = Sample(), np.random.default_rng(0).gamma(2.0, 1.0, 100_000)
    for value in values:
        sample.add((value, 1.0))
    assert Sample.MOST / 2 <= len(sample.rows) <= Sample.MOST
    assert sample.mean == pytest.approx(values.mean())
    assert np.median([row[0] for row in sample.rows]) == pytest.approx(np.median(values), rel=0.05)


def test_figures_of_a_new_plan_begin_anew():
    figures = Figures()
    for seconds, planned in ((9.0, False), (5.0, True), (1.0, True)):
        if seconds == 1.0:
            figures.planned_again()
        figures.add((seconds,) * 5, full=True, planned=planned)
    figures.add((77.0,) * 5, full=False, planned=True)
    assert figures.measured(lambda values: values, 10)["iteration_s"] == 1.0


def test_large_finite_gradients_are_finite():
    huge = np.full(4, 3e38, np.float32)
    with np.errstate(over="ignore"):
        assert all_finite(huge)
        assert not all_finite(np.array([1.0, np.inf], np.float32))
        assert not all_finite(np.array([1.0, np.nan], np.float32))


@needs_mpirun
def test_the_log_begins_with_versions_and_options_and_its_lines_have_the_time(tmp_path):
    done = run(MPIRUN, "-n", 2, MGWFBP, "train", "mlp", *SMALL, "--log-every", "3", "--out", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second, *_ = lines = done.stdout.splitlines()
    assert re.match(
        r"mgwfbp \S+, Python \S+, NumPy \S+, \S+ \S+; \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S* on \S+ \(2\)$", first
    )
    assert second.startswith("options: mlp --data synthetic")
    progress = [line for line in lines if line.startswith("iteration ") and "/" in line.split()[1]]
    assert progress
    assert all(re.search(r"  \d\d:\d\d:\d\d$", line) for line in progress)
    used = json.loads((tmp_path / "r/config.json").read_text())["used"]
    assert used["world_size"] == 2
    assert list(used["hosts"].values()) == [2]
    metrics = [json.loads(line) for line in (tmp_path / "r/metrics.jsonl").read_text().splitlines()]
    assert all({"lr", "time"} <= set(line) for line in metrics if "iteration" in line)


def test_loss_and_accuracy_of_a_line_are_means_since_the_line_before(tmp_path):
    command = [MGWFBP, "train", "mlp", *SMALL[:2], "--batch-size", "64", "--log-every", "20", "--epochs", "2"]
    done = run(*command, "--out", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    metrics = [json.loads(line) for line in (tmp_path / "r/metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in metrics if "iteration" in line]
    shown = re.findall(r"^iteration +(\d+)/64 .* loss (\S+)", done.stdout, re.MULTILINE)
    assert [int(number) for number, _ in shown] == [20, 40, 60, 64]  # none for the end of the first epoch
    for start, (stop, loss) in zip((0, 20, 40, 60), shown, strict=True):
        assert float(loss) == pytest.approx(np.mean(losses[start : int(stop)]), abs=1e-3)


def test_one_rank_says_that_nothing_is_sent(tmp_path):
    done = run(MGWFBP, "train", "mlp", *SMALL, "--out", "r", cwd=tmp_path)
    assert "one rank: nothing is sent; mpirun -n 2 mgwfbp train" in done.stdout
    for word in ("overlap", "schedule ", "all 1 ranks", "planning again"):
        assert word not in done.stdout


def test_a_terminal_that_is_ascii_shows_what_it_can(tmp_path):
    text = 'import mgwfbp as mg\nmg.run(mg.Config("mlp", data="synthetic:28x28x1x10", iterations=3, out="r"))'
    done = run(sys.executable, "-c", text, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "1 rank ? " in done.stdout


def test_an_unknown_variable_is_named(tmp_path):
    done = run(MGWFBP, "plan", "k80-googlenet", "--network", "k80-10gbe:8", MGWFBP_BATCHSIZE="3", MGWFBP_THREADS="1")
    assert done.returncode == 0
    assert done.stderr == (
        "mgwfbp: warning: MGWFBP_BATCHSIZE is set, and nothing here reads it; did you mean MGWFBP_BATCH_SIZE?\n"
    )


@needs_mpirun
def test_a_command_on_paper_is_said_once_under_a_launcher():
    alone = run(MGWFBP, "plan", "k80-googlenet", "--network", "k80-10gbe:8")
    assert run(MPIRUN, "-n", 2, MGWFBP, "plan", "k80-googlenet", "--network", "k80-10gbe:8").stdout == alone.stdout


def test_the_version_names_what_a_report_of_a_fault_needs():
    text = run(MGWFBP, "--version").stdout
    for pattern in (r"^mgwfbp \d", r"^Python \d.* on ", r"^NumPy \d", r"^mpi4py \d\S* with \S+ \d", r"^kernels: numpy"):
        assert re.search(pattern, text, re.MULTILINE), pattern


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("train resnet1", {"resnet110", "resnet18", "resnet101", "resnet152"}),
        ("train lenet --schedule pi", {"pipelined"}),
        ("train lenet --data mn", {"mnist", "mnist5k"}),
        ("train lenet --on-nan s", {"stop", "skip"}),
        ("plan k80-g", {"k80-googlenet"}),
    ],
)
def test_a_shell_completes_the_names_that_there_are(words, found):
    count = str(len(words.split()))
    done = run(MGWFBP, _MGWFBP_COMPLETE="bash_complete", COMP_WORDS=f"mgwfbp {words}", COMP_CWORD=count)
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == found


def test_a_net_for_other_images_says_which_data_it_is_for(tmp_path):
    done = run(MGWFBP, "train", "alexnet", cwd=tmp_path)
    says = "alexnet is made for 227×227×3 and mnist5k has 28×28×1: --data images:227 or synthetic:227x227x3x10"
    assert says in mistake(done, "layer pool2")


def test_a_run_in_a_thread_leaves_signals_alone(tmp_path):
    text = """
import signal, threading
import mgwfbp as mg

before = signal.getsignal(signal.SIGTERM)
found = []
config = mg.Config("mlp", data="synthetic:28x28x1x10", iterations=3, out="r")
thread = threading.Thread(target=lambda: found.append(mg.run(config)))
thread.start()
thread.join()
assert found[0]["iterations"] == 3 and signal.getsignal(signal.SIGTERM) is before
"""
    done = run(sys.executable, "-c", text, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_training_images_that_are_validated_on_are_called_so(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow, which makes images, is not installed")
    for name in ("cat", "dog"):
        (tmp_path / "f/train" / name).mkdir(parents=True)
        for number in range(3):
            image.new("RGB", (30, 30), (40 * number, 90, 200)).save(tmp_path / "f/train" / name / f"{number}.png")
    command = [MGWFBP, "train", "mlp", "--data", "images:28", "--data-dir", "f", "--epochs", "1", "--out", "r"]
    done = run(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "epoch 1: training accuracy" in done.stdout
    assert "\ntraining accuracy" in done.stdout
    assert "validation accuracy" not in done.stdout
    assert json.loads((tmp_path / "r/summary.json").read_text())["validated_on"] == "training"


def test_a_home_in_a_config_file_is_the_users(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    config = Config("lenet", data_dir="~/mnist", out="~/runs/a", weights="~/w.safetensors")
    assert (config.data_dir, config.out, config.weights) == (
        "/somewhere/mnist",
        "/somewhere/runs/a",
        "/somewhere/w.safetensors",
    )


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_reader_that_leaves_a_log_early_ends_the_run_without_a_traceback(tmp_path, ranks):
    start = [MPIRUN, "-n", str(ranks)] if ranks > 1 else []
    command = [*start, MGWFBP, "train", "mlp", *SMALL[:2], "--epochs", "20", "--log-every", "1", "--out", "r"]
    text = " ".join(map(str, command)) + " | head -3"
    done = run("bash", "-c", text, cwd=tmp_path)
    assert len(done.stdout.splitlines()) == 3
    assert "Traceback" not in done.stderr


def test_options_that_contradict_each_other_are_one_line(tmp_path):
    for words, says in (
        (["mlp", "--replace-head"], "--replace-head goes with --weights"),
        (["mlp", "--change"], "--change goes with --resume"),
        (["--resume", "runs/none", "--weights", "x"], "--resume goes on with a run's own weights"),
        (["--resume", "runs/none"], "--resume runs/none: there is no such folder"),
    ):
        mistake(run(MGWFBP, "train", *words, cwd=tmp_path), says)
    (tmp_path / "c.json").write_text('{"model": "mlp", "epoch": 9}')
    mistake(run(MGWFBP, "train", "--config", "c.json", cwd=tmp_path), "did you mean 'epochs'?")
