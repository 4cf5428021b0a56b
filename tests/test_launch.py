"""Worlds of one rank that were meant to be larger, and ranks that were given too little."""

from __future__ import annotations

import pytest

from mgwfbp.comm.launch import meant_more, wrong_launcher
from tests.test_cli import MGWFBP, MPIRUN, SMALL, mistake, needs_mpirun, run


@pytest.mark.parametrize(
    ("environment", "launcher"),
    [
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"}, "srun"),  # plain srun with MPICH
        ({"PMI_SIZE": "2", "PMI_RANK": "1", "SLURM_STEP_NUM_TASKS": "2"}, "mpirun or srun --mpi=pmi2"),  # Open MPI
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}, "Open MPI's mpirun"),  # with MPICH
    ],
)
def test_a_world_of_one_that_was_meant_to_be_larger(environment, launcher):
    assert meant_more(1, "MPICH", environment).startswith(f"{launcher} started ")
    assert meant_more(2, "MPICH", environment) is None


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_STEP_NUM_TASKS": "1"},
        {"PMI_SIZE": "1", "PMI_RANK": "0", "SLURM_STEP_NUM_TASKS": "2"},  # mpirun -n 1 on two nodes: the proxies' step
        {"PMIX_RANK": "0", "SLURM_STEP_NUM_TASKS": "2"},
        {"SLURM_NTASKS": "8"},  # inside sbatch, no step
        {"SLURM_STEP_NUM_TASKS": "many"},
    ],
)
def test_a_world_of_one_that_is_one(environment):
    assert meant_more(1, "MPICH", environment) is None


MPICH = "MPICH Version:\t5.0.2\nMPICH configure:\t--with-pm=hydra:gforker\n\0"


@pytest.mark.parametrize(
    ("library", "environment", "says"),
    [
        (MPICH, {"OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "0"}, "Open MPI's mpirun started this process, but its MPI"),
        (MPICH, {"PMIX_RANK": "0"}, "use srun --mpi=pmi2"),
        (MPICH, {"PMI_RANK": "0", "PMIX_RANK": "0"}, None),
        (MPICH, {}, None),
        (MPICH + "--with-pmix=/usr", {"PMIX_RANK": "0"}, None),
        ("Open MPI v5.0.8, package", {"OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "0"}, None),
        ("", {"PMIX_RANK": "0"}, None),
    ],
)
def test_a_launcher_that_the_library_does_not_understand(library, environment, says):
    found = wrong_launcher(library, environment)
    assert found is None if says is None else says in found and "MPICH Version: 5.0.2" in found


def test_the_mpirun_of_another_mpi_is_named_before_mpi_ends_the_process(tmp_path):
    done = run(MGWFBP, "train", "mlp", *SMALL, "--out", tmp_path / "run", OMPI_COMM_WORLD_SIZE="2", PMIX_RANK="0")
    mistake(done, "use the mpirun that belongs to it")


def test_the_command_stops_with_advice(tmp_path):
    done = run(MGWFBP, "train", "mlp", *SMALL, "--out", tmp_path / "run", SLURM_STEP_NUM_TASKS="2", SLURM_PROCID="1")
    assert "srun --mpi=pmi2 with MPICH" in mistake(done, "srun started 2 processes, but each is a world of one rank")


@needs_mpirun
def test_too_many_threads_and_too_few_cores_are_said_once(tmp_path):
    command = ["train", "mlp", *SMALL, "--batch-size", "2", "--out", tmp_path / "run", "--threads", "64"]
    done = run(MPIRUN, "-n", 2, MGWFBP, *command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("× 64 threads on") == 1
    bound = run(MPIRUN, "-n", 2, "taskset", "-c", "0", MGWFBP, *command[:-2], "--overwrite")
    assert bound.returncode == 0, bound.stderr
    assert bound.stdout.count("bound to a single core") == 1
