"""Which launcher jobs/launch.sh takes, for MPIs and Slurms that are not here: stand-ins answer in their names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NTASKS": "4", "VIRTUAL_ENV": "active"}


def launch(folder, library, pmis, **variables):
    """The last line that launch.sh prints where mpi4py finds `library` and Slurm speaks `pmis`."""
    for name, says in (("python", library), ("srun", pmis), ("mgwfbp", "")):
        (folder / name).write_text(f"#!/bin/sh\necho '{says}'\n")
        (folder / name).chmod(0o755)
    command = ["bash", "-c", ". jobs/launch.sh; echo SRUN_CPUS_PER_TASK=$SRUN_CPUS_PER_TASK"]
    environment = {"PATH": f"{folder}:/usr/bin:/bin", **JOB, **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("library", "pmis", "words"),
    [
        ("MPICH Version: 5.0.2", "none pmi2 pmix", "srun --mpi=pmi2 --wait=10"),
        ("MPICH Version: 5.0.2", "none pmix", "mpirun -n 4"),
        ("Open MPI v5.0.11, package: Open MPI", "none pmi2 pmix_v4 pmix", "srun --mpi=pmix --wait=10"),
        ("Open MPI v4.1.6, package: Open MPI", "none pmi2", "mpirun --bind-to none -n 4"),
        ("MVAPICH2 Version: 2.3.7", "none pmi2", "srun --mpi=pmi2 --wait=10"),
        ("MPI VERSION    : CRAY MPICH version 8.1.30", "cray_shasta none pmi2", "srun --wait=10"),
        ("Intel(R) MPI Library 2021.13 for Linux* OS", "none pmi2", "mpirun -n 4"),
    ],
)
def test_the_launcher_fits_the_mpi(tmp_path, library, pmis, words):
    assert f"job 7 on n[1-2]: {words}\n" in launch(tmp_path, library, pmis)


def test_a_launcher_that_is_named_is_taken(tmp_path):
    found = launch(tmp_path, "MPICH Version: 5.0.2", "pmi2", MGWFBP_LAUNCHER="mpiexec -bind-to core", SLURM_WAIT="3")
    assert ": mpiexec -bind-to core -n 4\n" in found
    found = launch(tmp_path, "MPICH Version: 5.0.2", "pmi2", MGWFBP_LAUNCHER="srun --mpi=pmix", SLURM_WAIT="3")
    assert ": srun --mpi=pmix --wait=3\n" in found


def test_cores_a_task_reach_srun(tmp_path):
    assert "SRUN_CPUS_PER_TASK=8" in launch(tmp_path, "MPICH", "pmi2", SLURM_CPUS_PER_TASK="8")
    assert "SRUN_CPUS_PER_TASK=\n" in launch(tmp_path, "MPICH", "pmi2")


def test_no_environment_is_said(tmp_path):
    command = [shutil.which("bash"), "-c", ". jobs/launch.sh"]
    environment = {"PATH": str(tmp_path), **JOB}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "set MGWFBP_VENV" in done.stderr


def test_no_page_or_script_names_a_place_of_some_machine():
    for path in (ROOT / "jobs").iterdir():
        assert not any(place in path.read_text() for place in ("/work/", "/root/", "/tmp/", "/home/")), path.name
