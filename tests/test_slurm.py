"""The job scripts, submitted to a real Slurm of two nodes with stand-in GPUs (tests/slurm), as root on Debian."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mgwfbp.cli.main import COMMANDS
from tests.slurm.cluster import ROOT, Job, UnavailableError, slurm
from tests.test_cli import BIN, MGWFBP, MPIRUN
from tests.test_failures import TRAIN

SCRIPTS = sorted((ROOT / "jobs").glob("*.sbatch"))
# Messages that take 10 ms: a run of 3 s and more, however fast the machine, most of which is waiting.
RUN = [*TRAIN[2:], "--network", "a=10ms,b=0", "--iterations", "200"]


@pytest.fixture(scope="session")
def cluster():
    if MPIRUN is None or not Path(MPIRUN).with_name("mpichversion").exists():
        pytest.skip("needs MPICH in the environment")
    own = {"MGWFBP_VENV": sys.prefix} if Path(sys.prefix, "bin", "activate").exists() else {}
    try:
        with slurm() as environment:
            yield {**environment, "PATH": f"{BIN}:{environment['PATH']}", **own}
    except UnavailableError as error:
        pytest.skip(str(error))


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_slurm_takes_every_script(cluster, script):
    subprocess.run(["sbatch", "--test-only", script], cwd=ROOT, env=cluster, check=True, capture_output=True)


def test_a_run_that_was_broken_off_ends_as_one_that_was_not(cluster, tmp_path):
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    job = Job(cluster, tmp_path / "broken.log", "jobs/preemptible.sbatch", *RUN, "--out", broken)
    job.until("iteration  20/200")
    job.signal("--batch", "--signal=USR1")
    job.until("USR1: stopped after iteration")
    other = Job(cluster, tmp_path / "whole.log", "jobs/train.sbatch", *RUN, "--out", whole)
    assert other.end() == 0, other.log
    assert "on n[1-2]: srun --mpi=pmi2" in other.log
    assert summary(whole)["world_size"] == 2
    assert job.end() == 0, job.log
    steps = [job.log.index(text) for text in ("stopped after iteration", "run 2 of this job", "resumed after")]
    assert steps == sorted(steps)
    assert summary(broken)["parameters_sha256"] == summary(whole)["parameters_sha256"]


def test_two_tasks_on_two_nodes_by_mpirun(cluster, tmp_path):
    command = ["jobs/train.sbatch", *RUN, "--out", tmp_path / "run", "--iterations", "6"]
    job = Job(cluster, tmp_path / "log", *command, MGWFBP_LAUNCHER="mpirun")
    assert job.end() == 0, job.log
    assert "on n[1-2]: mpirun -n 2" in job.log
    assert summary(tmp_path / "run")["world_size"] == 2


def test_a_profile_a_network_and_a_plan(cluster, tmp_path):
    command = ["jobs/profile.sbatch", "mlp", "--iterations", "1", "--batch-size", "4"]
    job = Job(cluster, tmp_path / "log", *command, MGWFBP_OUT=str(tmp_path / "out"), MGWFBP_LARGEST="64kB")
    assert job.end() == 0, job.log
    assert "speed-up: against the slowest row" in job.log
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"network.json", "workload.json"}


def test_schedules_side_by_side(cluster, tmp_path):
    options = ["mlp", "--rounds", "1", "--batch-size", "4", "--network", "a=1ms,b=0", "--schedule", "optimal"]
    job = Job(cluster, tmp_path / "log", "--oversubscribe", "jobs/bench-schedules.sbatch", *options)
    assert job.end() == 0, job.log
    assert "mlp, batch 4 a rank, 2 ranks" in job.log


@pytest.mark.skipif("doctor" not in COMMANDS, reason="there is no doctor yet")
def test_the_doctor(cluster, tmp_path):
    job = Job(cluster, tmp_path / "log", "jobs/doctor.sbatch")
    assert job.end() == 0, job.log


def test_worlds_of_one_rank_stop_with_advice(cluster, tmp_path):
    job = Job(cluster, tmp_path / "log", "jobs/train.sbatch", *RUN, MGWFBP_LAUNCHER="srun")
    assert job.end() == 2, job.log
    assert "srun started 2 processes, but each is a world of one rank" in job.log


def test_a_killed_rank_ends_the_step(cluster, tmp_path):
    fault = {"MGWFBP_FAULT": "rank=1,iteration=5,kind=kill", "SLURM_WAIT": "2"}
    job = Job(cluster, tmp_path / "log", "jobs/train.sbatch", *RUN, "--out", tmp_path / "run", **fault)
    assert job.end(30) == 137, job.log


CHOOSE = """
import sys
from mgwfbp.comm import World, choose_device, visible_devices
from mgwfbp.errors import UserError
world, visible = World(), visible_devices()
try:
    choice = visible[choose_device(world, visible)]
except UserError as error:
    choice = str(error)
sys.stdout.write(f"{world.local_rank} of {','.join(visible)} takes {choice}\\n")
"""


EACH_ITS_OWN = ["0 of 0 takes 0", "1 of 1 takes 1"]
EACH_OF_ALL = ["0 of 0,1 takes 0", "1 of 0,1 takes 1"]


@pytest.mark.parametrize(
    ("launch", "form", "found"),
    [
        (["srun", "--mpi=pmi2"], "--gpus-per-task=1", EACH_ITS_OWN),
        (["srun", "--mpi=pmi2"], "--gres=gpu:2", EACH_OF_ALL),
        (["srun", "--mpi=pmi2"], "--gpus=2", EACH_OF_ALL),
        (["srun", "--mpi=pmi2"], "--gpus-per-node=2", EACH_OF_ALL),
        ([MPIRUN, "-n", "2"], "--gpus-per-node=2", EACH_OF_ALL),
        ([MPIRUN, "-n", "2"], "--gpus-per-task=1", ["0 of 0 takes 2 ranks on", "1 of 0 takes 2 ranks on"]),
    ],
)
def test_each_rank_takes_a_gpu_of_its_own(cluster, launch, form, found):
    command = ["salloc", "--quiet", "--nodes=1", "--ntasks=2", form, *launch, sys.executable, "-c", CHOOSE]
    done = subprocess.run(command, env=cluster, capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert [line[: len(start)] for line, start in zip(lines, found, strict=True)] == found


@pytest.mark.parametrize("manager", ["pmi2", "none"])
def test_commands_at_the_prompt_of_a_step_work_alone_and_more_than_once(cluster, tmp_path, manager):
    """The shell has the step's variables, and with pmi2 its one place among two ranks; each command is one rank."""
    run = [MGWFBP, *TRAIN[1:], "--iterations", "3", "--overwrite", "--out", str(tmp_path / "run")]
    lines = [f"{MGWFBP} doctor | grep launcher", f"{' '.join(run)} | tail -n 1", f"{MGWFBP} train mlp --lr no", "exit"]
    _, text = at_a_prompt(["srun", "-n", "2", f"--mpi={manager}", "--pty", "bash", "--norc", "-i"], lines, cluster)
    assert "no launcher: 1 rank on 1 machine" in text
    assert summary(tmp_path / "run")["world_size"] == 1
    assert "Invalid value for '--lr'" in text


@pytest.mark.parametrize("command", ["{} doctor", "bash -c '{} doctor; true'"])
def test_what_srun_starts_with_a_terminal_are_ranks(cluster, command):
    code, text = at_a_prompt(
        ["srun", "-n", "2", "--mpi=pmi2", "--pty", "bash", "-c", command.format(MGWFBP)], [], cluster
    )
    assert code == 0, text
    assert "srun (pmi2): 2 ranks on 1 machine" in text


def at_a_prompt(command, lines, environment):
    """(exit code, all that came) of a command with a terminal of its own, in which `lines` are typed."""
    master, slave = pty.openpty()
    job = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env={**environment, "COLUMNS": "120"}, start_new_session=True
    )
    os.close(slave)
    text, deadline = b"", threading.Timer(60, job.kill)
    deadline.start()
    try:
        os.write(master, "".join(f"{line}\n" for line in lines).encode())
        while piece := os.read(master, 4096):
            text += piece
    except OSError:  # the terminal is closed
        pass
    finally:
        deadline.cancel()
        os.close(master)
    return job.wait(20), text.decode(errors="replace")
