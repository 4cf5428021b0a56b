"""The command line as a user types it: every run is a process of its own, under mpirun where ranks matter."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from mgwfbp.bench.schedules import agreement, surprises
from mgwfbp.cli.bench import said
from mgwfbp.cli.tables import counted, percent

BIN = Path(sys.executable).parent
MGWFBP = str(BIN / "mgwfbp")
MPIRUN = str(BIN / "mpirun") if (BIN / "mpirun").exists() else shutil.which("mpirun")
needs_mpirun = pytest.mark.skipif(MPIRUN is None, reason="no mpirun here")

SMALL = ["--data", "synthetic:28x28x1x10", "--iterations", "6", "--profile-iterations", "3", "--lr", "0.005"]


def run(*command, seconds=60, cwd=None, **environment):
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "120", **environment},
        check=False,
    )


def mistake(done, says):
    """The answer to a user's mistake: exit code 2 (3 where training has diverged), one line, no traceback."""
    assert done.returncode == (3 if "has diverged" in done.stderr else 2), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert done.stderr.startswith("mgwfbp: error"), done.stderr
    assert says in done.stderr
    return done.stderr


@pytest.fixture
def files(tmp_path):
    layers = [
        {"name": f"l{i}", "parameters": s, "nbytes": s, "backward_s": t}
        for i, (t, s) in enumerate([(1, 5), (0.9, 0), (0.9, 0)])
    ]
    (tmp_path / "w.json").write_text(json.dumps({"name": "w", "batch_size": 1, "forward_s": 0, "layers": layers}))
    (tmp_path / "n.json").write_text(json.dumps({"a_s": 1, "b_s_per_byte": 1}))
    return tmp_path


def test_plan_prints_the_contract(files):
    done = run(
        MGWFBP,
        "plan",
        files / "w.json",
        "--network",
        files / "n.json",
        "--json",
        "--schedule",
        "mgwfbp",
        "--schedule",
        "optimal",
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["workload"] == "w"
    assert result["network"] == str(files / "n.json")
    assert (result["a_s"], result["b_s_per_byte"]) == (1, 1)
    greedy, best = result["rows"]
    assert (greedy["schedule"], greedy["buckets"], greedy["bucket_layers"]) == ("mgwfbp", 1, [[0, 2]])
    assert greedy["iteration_s"] == pytest.approx(8.8)
    assert (best["schedule"], best["buckets"], best["bucket_layers"]) == ("optimal", 2, [[0, 0], [1, 2]])
    assert best["iteration_s"] == best["comm_end_s"] == pytest.approx(8.0)
    assert best["exposed_s"] == pytest.approx(5.2)
    assert best["overlap"] == pytest.approx(1.8 / 7)


def test_plan_prints_a_table_of_all_policies_without_mpi(files):
    block = files / "mpi4py"  # a package of this name that cannot be imported: plan must not try
    block.mkdir()
    (block / "__init__.py").write_text("raise SystemError('plan imported MPI')")
    done = run(MGWFBP, "plan", files / "w.json", "--network", "a=1s,b=1s", PYTHONPATH=str(files))
    assert done.returncode == 0, done.stderr
    for word in ("wfbp", "single", "mgwfbp", "optimal", "bucket:25MiB", "iteration ms", "8000.000", "8800.000"):
        assert word in done.stdout


def test_tables_are_as_wide_as_they_need(files):
    plan = [MGWFBP, "plan", files / "w.json", "--network", files / "n.json"]
    lines = run(*plan, COLUMNS="30").stdout.splitlines()
    assert lines == run(*plan, COLUMNS="300").stdout.splitlines()
    assert lines[2].split("  ")[0] == "schedule"
    for head in ("iteration ms", "exposed ms", "speed-up"):
        assert head in lines[2]
    assert sum("bucket:25MiB" in line for line in lines) == 1


def test_numbers_as_text():
    assert [counted(number, "rank") for number in (0, 1, 2, 1000)] == ["0 ranks", "1 rank", "2 ranks", "1,000 ranks"]
    assert [percent(share) for share in (-1e-16, 0.0, 0.1234, 1.5)] == ["0.0%", "0.0%", "12.3%", "150.0%"]


def test_the_predicted_order_is_judged_by_the_pairs_that_it_tells_apart():
    measured = {"a": (1.0, 1.3), "b": (1.2, 1.1), "c": (1.01, 1.0), "d": (2.0, 2.0)}
    rows = [
        {"schedule": name, "predicted_iteration_s": predicted, "measured_iteration_s": seconds}
        for name, (predicted, seconds) in measured.items()
    ]
    assert agreement(rows) == {"pairs": 6, "pairs_judged": 5, "pairs_agree": 4}
    assert said({**agreement(rows), "surprises": surprises(rows)}) == [
        "b was faster than a, which was predicted to be faster",
        "4 of 5 pairs predicted to differ by more than 2 % came in that order",
        "1 pair of schedules predicted to be equal within 2 %: not judged",
    ]
    alike = [{**row, "predicted_iteration_s": 1.0} for row in rows]
    assert said({**agreement(alike), "surprises": surprises(alike)}) == [
        "6 pairs of schedules predicted to be equal within 2 %: not judged"
    ]
    assert said({**agreement(rows[:1]), "surprises": []}) == []


def test_networks_of_several_node_counts_in_one_file_are_told_apart(files):
    several = [{"ranks": ranks, "a_s": ranks / 1000, "b_s_per_byte": 1e-9} for ranks in (4, 8)]
    (files / "nets.json").write_text(json.dumps({"networks": several}))
    for ranks in (4, 8):
        done = run(MGWFBP, "plan", "w.json", "--network", f"nets.json:{ranks}", "--json", cwd=files)
        assert json.loads(done.stdout)["a_s"] == ranks / 1000
    done = run(MGWFBP, "simulate", "w.json", "--network", "nets.json:8", "--json", cwd=files)
    assert {row["ranks"] for row in json.loads(done.stdout)["rows"]} == {8}
    played = ["--network", "nets.json:8", "--rounds", "1", "--schedule", "single"]
    done = run(MGWFBP, "replay", "k80-googlenet", *played, cwd=files, seconds=90)
    assert "nets.json:8, 1 rank, 1 round in turn" in done.stdout


def test_a_terminal_without_our_signs_and_outputs_that_cannot_be_written(files):
    plan = [MGWFBP, "plan", str(files / "w.json"), "--network", "a=1,b=1"]
    done = run(*plan, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "1000000.0 ?s a message" in done.stdout
    (files / "odd.json").write_text((files / "w.json").read_text().replace('"name": "w"', '"name": "\\ud800"'))
    assert run(MGWFBP, "plan", files / "odd.json", "--network", "a=1,b=1").returncode == 0
    quoted = " ".join(plan)
    assert run("sh", "-c", f"{quoted} >&-").returncode == 0
    full = run("sh", "-c", f"{quoted} >/dev/full")
    assert full.returncode == 1
    assert full.stderr == "mgwfbp: error: the output cannot be written (no space left)\n"


def test_two_runs_in_one_second_have_two_folders(tmp_path):
    command = [MGWFBP, "train", "mlp", *SMALL]
    both = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    for process in both:
        process.communicate()
    assert len(list((tmp_path / "runs").glob("mlp-*/summary.json"))) == 2


@needs_mpirun
def test_without_an_mpi_library_one_line_says_what_to_install(tmp_path):
    block = tmp_path / "mpi4py"
    block.mkdir()
    (block / "__init__.py").write_text("raise RuntimeError('cannot load MPI library')")
    for prefix in ([], [MPIRUN, "-n", "1"]):
        done = run(*prefix, MGWFBP, "train", "mlp", *SMALL, PYTHONPATH=str(tmp_path))
        mistake(done, "no MPI library can be loaded (cannot load MPI library)")


@needs_mpirun
@pytest.mark.parametrize("library", ["/nowhere/libdnnl.so", __file__])
def test_a_fast_set_that_cannot_be_loaded_is_replaced_and_said_once(tmp_path, library):
    environment = {"MGWFBP_KERNELS": "fast", "MGWFBP_ONEDNN": library}
    done = run(MPIRUN, "-n", "2", MGWFBP, "train", "mlp", *SMALL, "--out", tmp_path / "run", **environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the fast kernels cannot be loaded") == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "numpy kernels" in done.stdout


def test_kernel_sets_are_chosen_by_option_or_environment_and_unknown_ones_named(tmp_path):
    mistake(run(MGWFBP, "train", "mlp", *SMALL, "--kernels", "fats"), "did you mean 'fast'")
    mistake(run(MGWFBP, "train", "mlp", *SMALL, MGWFBP_KERNELS="fats"), "did you mean 'fast'")
    done = run(MGWFBP, "train", "mlp", *SMALL, "--out", tmp_path / "run", "--kernels", "numpy", MGWFBP_KERNELS="fast")
    assert "numpy kernels" in done.stdout


@needs_mpirun
def test_ranks_of_different_commands_are_told(tmp_path):
    done = run(
        MPIRUN, "-n", "1", MGWFBP, "train", "mlp", *SMALL, ":", "-n", "1", MGWFBP, "bench", "allreduce", cwd=tmp_path
    )
    assert done.returncode == 2
    assert "ranks run different commands: rank 0 train, rank 1 bench" in done.stderr


@needs_mpirun
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_folder_that_fills_up_is_one_line(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if run("mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", small).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        command = [MGWFBP, "train", "mlp", *SMALL[:2], "--epochs", "30", "--log-every", "1", "--out", small / "run"]
        done = run(MPIRUN, "-n", "2", *command)
        assert done.returncode == 2, done.stderr
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("mgwfbp")]
        assert "No space left on device" in line
        assert "Traceback" not in done.stderr
    finally:
        run("umount", small)


def test_without_arguments_the_help_is_shown():
    for arguments in ([], ["bench"]):
        done = run(MGWFBP, *arguments)
        assert done.returncode == 2
        assert "Usage: mgwfbp" in done.stdout
        assert not done.stderr


def test_simulate_prints_the_contract_and_writes_csv(tmp_path):
    command = [MGWFBP, "simulate", "k80-googlenet", "--network", "k80-10gbe", "--nodes", "8,64"]
    done = run(*command, "--schedule", "wfbp", "--schedule", "optimal", "--json", "--csv", tmp_path / "rows.csv")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["nodes"], row["schedule"]) for row in rows] == [(n, s) for n in (8, 64) for s in ("wfbp", "optimal")]
    last = rows[-1]
    assert last["iteration_s"] == pytest.approx(0.3680, rel=1e-3)
    assert last["buckets"] == 5
    assert last["efficiency"] == pytest.approx(last["speedup"] / 64)
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("nodes,schedule,buckets,iteration_s,speedup,efficiency")
    table = run(*command)
    assert "368.0" in table.stdout
    noisy = run(*command, "--jitter", "0.1", "--trials", "20")
    assert "95 % of trials" in noisy.stdout


def test_import_then_plan(tmp_path):
    log = "\n".join(f"I1 distributed.cpp:112] [{i}, 640, {100.5 + i // 2}, 7, 0]" for i in range(6))
    (tmp_path / "x.log").write_text(log)
    done = run(MGWFBP, "import", "bcaffe-log", "x.log", "-o", "w.json", "--forward-share", "0.4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "osu.log").write_text("# OSU\n4 10.0\n1024 11.0\n")
    assert run(MGWFBP, "import", "osu-log", "osu.log", "-o", "n.json", "--ranks", "2", cwd=tmp_path).returncode == 0
    done = run(MGWFBP, "plan", "w.json", "--network", "n.json", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["workload"] == "x"


def test_reproduce_writes_a_report_and_its_exit_code_tells(tmp_path):
    pytest.importorskip("matplotlib")
    done = run(MGWFBP, "reproduce", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    report = (tmp_path / "out" / "report.md").read_text()
    assert "Numbers: 6 printed in the paper (2 of 2 checked match, 4 only shown" in report
    for plot in ("speedup.png", "iteration.png"):
        assert f"]({plot})" in report
        assert (tmp_path / "out" / plot).stat().st_size > 10_000
    # with one published figure changed, the same command must fail and say which
    broken = "import mgwfbp.simulate.reproduce as r; old = r.read_shipped\n"
    broken += "def read(*a):\n    v = old(*a); v.get('googlenet_simulated_ms', {'wfbp': [0] * 3})['wfbp'][2] = 700.0\n"
    broken += "    return v\n"
    broken += "r.read_shipped = read\nfrom mgwfbp.cli.main import main; main()\n"
    done = run(sys.executable, "-c", broken, "reproduce", "--out", tmp_path / "broken")
    assert done.returncode == 1
    assert "differs: GoogLeNet on a simulated K80 cluster: 64, wfbp: 704.4 ms, 700.0 expected" in done.stderr


@pytest.mark.all
def test_bench_step_prints_every_side_and_its_ratio():
    command = [MGWFBP, "bench", "step", "lenet", "--batch-size", "2", "--rounds", "2", "--against", "torch"]
    done = run(*command, "--json", seconds=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [row["side"] for row in result["rows"]] == ["fast", "numpy", "torch-nchw", "torch-nhwc"]
    for row in result["rows"]:
        assert min(row[key] for key in ("forward_s", "backward_s", "update_s", "ratio", "peak_nbytes")) > 0
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    assert next(row for row in result["rows"] if row["side"] == result["against"])["ratio"] == 1.0


def test_an_estimate_says_that_it_is_one(tmp_path):
    out = tmp_path / "w.json"
    done = run(MGWFBP, "profile", "resnet50", "--device-model", "k80", "-o", out)
    assert done.returncode == 0, done.stderr
    value = json.loads(out.read_text())
    assert value["source"].startswith("estimate, not measured")
    total = value["forward_s"] + sum(layer["backward_s"] for layer in value["layers"])
    assert total == pytest.approx(32 / 76.85)


def test_options_have_environment_variables(files):
    environment = {"MGWFBP_NETWORK": "a=1,b=1", "MGWFBP_SCHEDULE": "single", "MGWFBP_JSON": "1"}
    done = run(MGWFBP, "plan", files / "w.json", **environment)
    assert [row["schedule"] for row in json.loads(done.stdout)["rows"]] == ["single"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan", "w.json", "--network", "n.json", "--schedule", "optimul"], "did you mean 'optimal'"),
        (["plan", "w.json", "--network", "n.json", "--schedule", "bucket:"], "it needs a size, as in bucket:25MB"),
        (["plan", "w.json", "--network", "n.json", "--schedule", "bucket:25"], "are 25 bytes meant (bucket:25B), or"),
        (["plan", "w.json", "--network", "bad.json"], "not JSON (line 1"),
        (
            ["plan", "w.json", "--network", "negative.json"],
            '"a_s" must be a finite number ≥ 0, at most 1e+18, found -1',
        ),
        (["plan", "w.json", "--network", "a=-1us,b=1ns"], "finite time ≥ 0"),
        (["plan", "w.json", "--network", "k80-10gb:4"], "did you mean 'k80-10gbe'"),
        (["plan", "n.json", "--network", "n.json"], '"layers" must be a list'),
        (["plan", "none.json", "--network", "n.json"], "cannot be read"),
        (["plan", "w.json"], "plan needs --network SPEC"),
        (["plan", "k80-googlenet"], "only a run folder has its own"),
        (["plan", ".", "--network", "a=1,b=1"], "workload file workload.json: cannot be read"),
        (["plan", "w.json", "--network", "nets.json"], "needs its number of ranks"),
        (["plan", "w.json", "--network", "nets.json:7"], "nets.json: measured for 4, 8 "),
        (["plan", "w.json", "--network", "nets.json:x"], "needs its number of ranks"),
        (["plan", "w.json", "--network", "n.json:8"], "leave :8 out"),
        (["plan", "w.json", "--network", "none.json:8"], "network file none.json:8: cannot be read"),
        (["plan"], "Missing argument"),
        (["plan", "w.json", "--netwrok", "n.json"], "--network"),
        (["plam", "w.json"], "did you mean 'plan'"),
        (["train", "lenet5"], "did you mean 'lenet'"),
        (["train", "lenet", "--data", "mnist5"], "did you mean 'mnist5k'"),
        (["train", "lenet", "--data", "mnist", "--data-dir", "nowhere"], "the folder nowhere does not exist"),
        (["train", "lenet", *SMALL, "--schedule", "optimum"], "did you mean 'optimal'"),
        (["train", "lenet", *SMALL, "--epochs", "0"], "--epochs must be 1 or more"),
        (["train", "lenet", *SMALL, "--epochs", "two"], "not a valid integer"),
        (["train", "lenet", *SMALL, "--lr", "nan"], "--lr must be a finite number"),
        (["train", "lenet", *SMALL, "--transport", "nonsense"], "unknown transport 'nonsense'"),
        (["train", "lenet", *SMALL, "--optimizer", "adam", "--nesterov"], "--optimizer adam takes no --nesterov"),
        (["train", "lenet", *SMALL, "--lr-policy", "pole"], "did you mean 'poly'"),
        (["train", "lenet", "--data", "synthetic:8x8x1x10"], "layer conv2 (Conv2d): needs an input of at least"),
        (["train", "lenet", *SMALL, "--shift", "28"], "moves images of (28, 28, 1) out of sight"),
        (["train", "mlp", "--data", SMALL[1], "--iterations", "1", "--lr", "1e30"], "the validation loss is"),
        (["plan", "w.json", "--network", "a=1e308,b=1"], "finite time ≥ 0"),
        (["plan", "w.json", "--network", "k80-10gbe:" + "1" * 5000], "number of nodes"),
        (["plan", "digits.json", "--network", "n.json"], "cannot be read as JSON"),
        (["train", "lenet", *SMALL, "--out", "w.json"], "run folder w.json: cannot be made"),
        (["profile", "lenet", "-o", "nowhere/w.json", "--iterations", "1", "--batch-size", "1"], "cannot be written"),
        (["profile", "lenet5", "-o", "x.json"], "did you mean 'lenet'"),
        (["bench", "allreduce", "--largest", "big"], "no size"),
        (["bench", "allreduce"], "one rank sends nothing: start it with mpirun -n 2 mgwfbp bench allreduce"),
        (["bench", "schedules", "lenet"], "one rank sends nothing: start it with mpirun -n 2 mgwfbp bench schedules"),
        (["replay", "w.json"], "one rank sends nothing: start it with mpirun -n 2 mgwfbp replay"),
        (["bench", "allreduce", "-o", "."], "it is a folder"),
        (["train", "mlp", *SMALL, "--seed", str(2**64)], "--seed must be below 2^63"),
        (["train", "mlp", *SMALL, "--lr-policy", "inv:gamma=-1"], "needs numbers ≥ 0"),
        (["bench", "step", "lenet5"], "did you mean 'lenet'"),
        (["bench", "schedules", "lenet5"], "did you mean 'lenet'"),
        (["bench", "schedules", "lenet", "--network", "k80-10gbe"], "needs its number of nodes"),
        (["bench", "schedules", "lenet", "--batch-size", "1", "--schedule", "optimum"], "did you mean 'optimal'"),
        (["replay", "w.json", "--schedule", "optimum"], "did you mean 'optimal'"),
        (["replay", "none.json"], "cannot be read"),
        (["replay", "w.json", "--timeline", "nowhere/t.json"], "cannot be written"),
        (["train", "lenet", "--network", "k80"], "did you mean 'k80-10gbe'"),
        (["train", "lenet", "--replan", "often"], "--replan often: must be auto, never or a number"),
        (["train", "lenet", "--label-smoothing", "1"], "--label-smoothing must be at least 0 and below 1"),
        (["bench", "step", "lenet", "--against", "caffe"], "'caffe' is not 'torch'"),
        (["simulate", "k80-googlenet"], "needs --network SPEC"),
        (["simulate", "k80-googlenet", "--network", "k80-10gbe"], "say which, --nodes"),
        (["simulate", "googlenet", "--network", "k80-10gbe:4"], "did you mean 'k80-googlenet'"),
        (["simulate", "k80-googlenet", "--network", "k80-10gbe:4", "--jitter", "-1"], "--jitter -1.0: must be a share"),
        (["simulate", "k80-googlenet", "--network", "k80-10gbe:4", "--plot", "x.xyz"], "no format"),
        (["simulate", "k80-googlenet", "--sweep", "a=1"], "--sweep"),
        (["import", "bcaffe-log", "w.json", "-o", "x.json"], "holds no line of B-Caffe"),
        (["import", "osu-log", "none.log", "-o", "x.json"], "cannot be read"),
        (["profile", "resnet50", "--device-model", "k8", "-o", "x.json"], "did you mean 'k80'"),
        (["profile", "resnet50", "--device-model", "w.json", "-o", "x.json"], "not TOML"),
        (["reproduce", "--out", "w.json"], "cannot be made"),
    ],
)
def test_a_mistake_is_answered_in_one_line(files, arguments, says):
    (files / "bad.json").write_text("{")
    (files / "digits.json").write_text('{"batch_size": ' + "9" * 5000 + "}")
    (files / "negative.json").write_text(json.dumps({"a_s": -1, "b_s_per_byte": 1}))
    several = [{"ranks": ranks, "a_s": ranks, "b_s_per_byte": 1e-9} for ranks in (4, 8)]
    (files / "nets.json").write_text(json.dumps({"networks": several}))
    mistake(run(MGWFBP, *arguments, cwd=files), says)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["train", "--help"], ["plan", "--help"], ["profile", "--help"], ["bench", "allreduce", "--help"]],
)
def test_help_has_examples(arguments):
    done = run(MGWFBP, *arguments)
    assert done.returncode == 0
    assert "mgwfbp" in done.stdout
    if arguments != ["--help"]:
        assert "Examples:" in done.stdout


def test_a_run_folder_is_not_overwritten_unasked(tmp_path):
    command = [MGWFBP, "train", "mlp", *SMALL, "--out", tmp_path / "run"]
    assert run(*command).returncode == 0
    mistake(run(*command), "holds another run (config.json)")
    (tmp_path / "run" / "mine.txt").write_text("kept")
    assert run(*command, "--overwrite").returncode == 0
    assert (tmp_path / "run" / "mine.txt").exists()


def test_a_run_that_diverges_says_so(tmp_path):
    done = run(MGWFBP, "train", "lenet", *SMALL[:2], "--iterations", "40", "--lr", "100", "--out", tmp_path / "run")
    assert "smaller --lr" in mistake(done, "training has diverged")


@needs_mpirun
def test_replay_prints_the_contract_and_writes_a_timeline(tmp_path):
    command = ["replay", "k80-googlenet", "--network", "k80-10gbe:64", "--rounds", "1", "--timeline", "t.json"]
    done = run(MPIRUN, "-n", 2, MGWFBP, *command, "--schedule", "optimal", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["workload"], result["network"]) == ("k80-googlenet", "k80-10gbe:64")
    (row,) = result["rows"]
    assert (row["schedule"], row["buckets"], len(row["bucket_layers"])) == ("optimal", 5, 5)
    assert row["iteration_s"] == row["predicted_iteration_s"] == pytest.approx(0.368, rel=1e-3)
    assert row["measured_iteration_s"] == pytest.approx(row["ratio"] * row["iteration_s"])
    assert 0.99 < row["ratio"] < 1.5  # how near is benchmarks' matter
    assert len(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) > 4 * 64
    done = run(MPIRUN, "-n", 2, MGWFBP, "bench", "schedules", "lenet", "--batch-size", 2, "--rounds", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    names = ["wfbp", "single", "mgwfbp", "optimal", "pipelined", "sharded", "bucket:25MiB", "dear:25MB"]
    assert [line.split()[0] for line in lines[1:10]] == ["schedule", *names]
    judged = [int(n) for line in lines[10:] for n in re.findall(r"^(?:\d+ of )?(\d+) pairs? ", line)]
    assert sum(judged) == 8 * 7 / 2
    done = run(
        MPIRUN, "-n", 2, MGWFBP, "bench", "allreduce", "--largest", "4kB", "--json", "-o", "n.json", cwd=tmp_path
    )
    assert json.loads(done.stdout) == json.loads((tmp_path / "n.json").read_text())
    assert done.stderr == "written to n.json\n"


@needs_mpirun
def test_mpirun_train_profile_bench_and_plan(tmp_path):
    """The whole path by hand, two ranks: measure the network and the net, train, plan by what the run left behind."""
    mpirun = [MPIRUN, "-n", "2", MGWFBP]
    done = run(*mpirun, "bench", "allreduce", "--largest", "64kB", "-o", "n.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 ranks:" in done.stdout
    done = run(*mpirun, "profile", "lenet", "--batch-size", "4", "--iterations", "2", "-o", "w.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    workload = json.loads((tmp_path / "w.json").read_text())
    assert [layer["name"] for layer in workload["layers"]] == ["ip2", "ip1", "conv2", "conv1"]
    assert sum(layer["parameters"] for layer in workload["layers"]) == 431_080
    assert workload["batch_size"] == 4
    done = run(*mpirun, "train", "lenet", *SMALL, "--out", "run", cwd=tmp_path, MGWFBP_KERNELS="fast")
    assert done.returncode == 0, done.stderr
    assert "fast kernels" in done.stdout or "cannot be loaded" in done.stderr
    for word in (
        "run folder           run",
        "validation accuracy",
        "measured",
        "predicted",
        "overlap",
        "equal on all 2 ranks",
    ):
        assert word in done.stdout
    files = ["run/workload.json", "--network", "run/network.json"]
    plans = [["w.json", "--network", "n.json"], files, ["run"], ["run/workload.json", "--network", "run/"]]
    rows = []
    for words in plans:
        done = run(MGWFBP, "plan", *words, "--json", cwd=tmp_path)
        rows.append(json.loads(done.stdout)["rows"])
        assert {row["schedule"] for row in rows[-1]} >= {"wfbp", "optimal"}
    assert rows[1] == rows[2] == rows[3]  # a run folder stands for what lies in it
    assert "MPICH Version:  " not in (tmp_path / "n.json").read_text()


@needs_mpirun
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "lenett"], "did you mean 'lenet'"),
        (["train", "lenet", *SMALL, "--global-batch-size", "1"], "a global batch of 1 is too small for 2 ranks"),
        (["train", "lenet", *SMALL, "--batch-size", "0"], "--batch-size must be 1 or more"),
        (["train", "lenet", *SMALL, "--lr", "1e30", "--log-every", "2"], "training has diverged"),
        (["bench", "allreduce", "--largest", "100000GiB"], "no memory for a message"),
        (["plam"], "did you mean 'plan'"),
    ],
)
def test_two_ranks_answer_a_mistake_in_one_line(arguments, says):
    done = run(MPIRUN, "-n", "2", MGWFBP, *arguments)
    assert done.returncode == (3 if "diverged" in says else 2), done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("mgwfbp")]
    assert len(lines) == 1, done.stderr
    assert says in lines[0]
    assert "Traceback" not in done.stderr


@needs_mpirun
@pytest.mark.parametrize(
    ("first", "second"), [(["lenet"], ["mlp"]), (["lenet", "--lr", "0.1"], ["lenet", "--lr", "0.2"])]
)
def test_ranks_started_differently_stop_with_both_fingerprints(tmp_path, first, second):
    common = [*SMALL[:2], "--out", tmp_path / "run"]
    done = run(MPIRUN, "-n", "1", MGWFBP, "train", *first, *common, ":", "-n", "1", MGWFBP, "train", *second, *common)
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("mgwfbp")]
    assert "nothing was sent: rank 0 has fingerprint" in line
    assert "rank 1 has" in line
    for side in (first, second):
        assert {"lenet": "net lenet", "mlp": "net mlp", "0.1": "lr=0.1", "0.2": "lr=0.2"}[side[-1]] in line
    assert not (tmp_path / "run").exists()


@needs_mpirun
@pytest.mark.parametrize(
    ("options", "says"),
    [(["--data", "synthetic:0"], "data set synthetic:0"), (["--epochs", "0"], "--epochs"), (["--epoch"], "--epochs")],
)
def test_a_mistake_on_one_rank_is_told_to_the_others_and_names_it(tmp_path, options, says):
    common = ["train", "lenet", *SMALL, "--out", tmp_path / "run"]
    done = run(MPIRUN, "-n", "1", MGWFBP, *common, ":", "-n", "1", MGWFBP, *common, *options, seconds=20)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("mgwfbp")]
    assert line.startswith("mgwfbp: error: rank 1 on ")
    assert says in line


FAILING = """
    import sys
    import numpy as np
    from mgwfbp.cli import main
    from mgwfbp.comm import HostTransport
    from mgwfbp.net.layers import Linear
    from mpi4py import MPI

    def fail(self, *arguments):
        fail.count = getattr(fail, "count", 0) + 1
        if MPI.COMM_WORLD.rank == 1 and fail.count > 4:
            raise RuntimeError("broken on purpose")
        return original(self, *arguments)

    kind = {"layer": (Linear, "forward"), "thread": (HostTransport, "all_reduce")}[sys.argv.pop(1)]
    original = getattr(*kind)
    if kind[0] is HostTransport:  # not in the benchmark before the run, but in the thread
        import threading
        def fail(self, array, inner=fail):
            return inner(self, array) if threading.current_thread().name == "comm" else original(self, array)
        fail.count = 0
    setattr(*kind, fail)
    main.main()
"""


@needs_mpirun
@pytest.mark.parametrize(
    ("kind", "where"), [("layer", "in the main thread"), ("thread", "in the comm thread at bucket")]
)
def test_an_exception_on_one_rank_ends_the_job_and_names_rank_and_place(tmp_path, kind, where):
    script = tmp_path / "fail.py"
    script.write_text(textwrap.dedent(FAILING))
    began = time.monotonic()
    done = run(
        MPIRUN, "-n", "2", sys.executable, script, kind, "train", "lenet", *SMALL, "--out", tmp_path / "run", seconds=30
    )
    assert done.returncode not in (0, 2)
    assert time.monotonic() - began < 15
    assert "mgwfbp: rank 1 on " in done.stderr
    assert where in done.stderr
    assert done.stderr.count("Traceback") == 1
    assert "RuntimeError: broken on purpose" in done.stderr


@needs_mpirun
def test_ranks_may_name_their_kernel_set_or_not(tmp_path):
    train = [MGWFBP, "train", "mlp", *SMALL, "--out", tmp_path / "run"]
    done = run(MPIRUN, "-n", 1, *train, "--kernels", "numpy", ":", "-n", 1, *train, MGWFBP_KERNELS="")
    # The other rank takes the fast set where it is installed: then both sides are shown, else it is the same set.
    assert done.returncode == 0 or "kernel set numpy" in mistake(done, "kernel set fast")


@needs_mpirun
def test_a_polling_interval_that_is_none_is_answered_once(tmp_path):
    done = run(MPIRUN, "-n", "2", MGWFBP, "train", "lenet", *SMALL, "--out", tmp_path / "run", MGWFBP_POLL_US="fast")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("MGWFBP_POLL_US=fast") == 1


@needs_mpirun
def test_one_rank_of_a_command_without_mpi_fails_alone(files):
    plan = [MGWFBP, "plan", "--network", "a=1,b=1"]
    done = run(MPIRUN, "-n", "1", *plan, files / "w.json", ":", "-n", "1", *plan, files / "none.json", seconds=20)
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


@needs_mpirun
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_or_interrupted_rank_ends_the_job(tmp_path, number):
    command = [
        MPIRUN,
        "-n",
        "2",
        MGWFBP,
        "train",
        "lenet",
        *SMALL[:2],
        "--epochs",
        "1000",
        "--out",
        str(tmp_path / "run"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("iteration"):
                break
        ranks = subprocess.run(
            ["pgrep", "-f", str(tmp_path / "run")], capture_output=True, text=True, check=False
        ).stdout
        pids = [int(pid) for pid in ranks.split() if int(pid) != process.pid]
        victim = max(pids)
        os.kill(victim, number)
        assert process.wait(timeout=10) != 0
    finally:
        process.kill()
        process.communicate()


def test_help_in_short_and_as_a_module():
    for command in ([MGWFBP, "-h"], [MGWFBP, "train", "-h"], [sys.executable, "-m", "mgwfbp", "--help"]):
        done = run(*command)
        assert done.returncode == 0, done.stderr
        assert "Usage: mgwfbp" in done.stdout


def test_a_reader_of_the_output_that_leaves_is_no_crash(tmp_path):
    for words in (
        "plan k80-googlenet --network k80-10gbe:64",
        "simulate k80-googlenet --network k80-10gbe --nodes 8,64",
    ):
        done = run("bash", "-c", f"{MGWFBP} {words} | head -1", cwd=tmp_path)
        assert done.stderr == ""


def test_a_shell_that_completes_a_word_sees_no_traceback():
    done = run(MGWFBP, _MGWFBP_COMPLETE="bash_complete", COMP_WORDS="mgwfbp tr", COMP_CWORD="1")
    assert done.stdout.strip() == "plain,train"
    assert done.stderr == ""
