"""Worlds of one rank that were meant to be larger, and ranks that were given too little."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mgwfbp.comm.launch import in_a_shell, leftovers, meant, meant_more, without_launcher, wrong_launcher
from mgwfbp.comm.world import joined
from mgwfbp.runs.start import crowded
from tests.test_cli import MGWFBP, MPIRUN, SMALL, mistake, needs_mpirun, run


def test_what_users_set_for_mpi_is_not_the_launchers():
    """A process that tries MPI out must try the one that the job has, switched on as there."""
    set_by_users = {
        "OMPI_MCA_pml": "ucx", "OMPI_MCA_opal_cuda_support": "true", "MPIR_CVAR_ENABLE_GPU": "1", "UCX_TLS": "tcp",
        "PMIX_MCA_gds": "hash", "MPICH_GPU_SUPPORT_ENABLED": "1", "MV2_USE_CUDA": "1", "OPAL_PREFIX": "/opt",
    }  # fmt: skip
    left = ["PMI_RANK", "PMIX_RANK", "PRTE_LAUNCHED", "HYDI_CONTROL_FD", "MPI_LOCALNRANKS", "SLURM_PROCID"]
    left += [
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_MCA_orte_ess_num_procs",
        "OMPI_MCA_ess",
        "OMPI_MCA_pmix",
        "OMPI_MCA_num_procs",
    ]
    assert without_launcher({**set_by_users, **dict.fromkeys(left, "1")}) == set_by_users


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


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, None),
        ({"PMI_SIZE": "4", "PMI_RANK": "3", "SLURM_STEP_NUM_TASKS": "2"}, ("3", 4, "PMI_RANK")),
        ({"PMI_SIZE": "1", "PMI_RANK": "0", "SLURM_STEP_NUM_TASKS": "2"}, None),  # mpirun -n 1 on two nodes
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, ("1", 2, "OMPI_COMM_WORLD_RANK")),
        ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "7"}, ("7", 8, "SLURM_PROCID")),
        ({"SLURM_STEP_NUM_TASKS": "many"}, None),
    ],
)
def test_what_a_process_was_meant_to_be(environment, found):
    assert (meant(environment) or (None,) * 4)[:3] == (found or (None,) * 3)


@pytest.mark.parametrize(
    ("environment", "dropped"),
    [
        ({"PMIX_RANK": "0", "PMIX_NAMESPACE": "n", "SLURM_STEP_NUM_TASKS": "1"}, {"PMIX_RANK", "PMIX_NAMESPACE"}),
        ({"PMIX_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, {"PMIX_RANK"}),
        ({"PMIX_RANK": "0", "SLURM_STEP_NUM_TASKS": "2"}, set()),
        ({"PMIX_RANK": "0"}, set()),
        ({"PMI_RANK": "0", "PMI_SIZE": "1", "PMIX_RANK": "0"}, set()),  # MPICH speaks that one
    ],
)
def test_one_process_needs_no_process_manager(environment, dropped):
    assert set(leftovers(MPICH, environment)) == dropped
    assert leftovers(MPICH + "--with-pmix=/usr", environment) == []
    if dropped:
        assert wrong_launcher(MPICH, environment) is None


def test_a_world_of_one_rank_starts_under_a_launcher_of_one_that_mpi_does_not_speak(tmp_path):
    step = {"SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_ID": "0", "PMIX_RANK": "0", "PMIX_SERVER_URI": "nowhere"}
    done = run(MGWFBP, "train", "mlp", *SMALL, "--out", tmp_path / "run", **step)
    assert done.returncode == 0, done.stderr


# A session with a terminal, as srun --pty opens one; then a process in the task's own group, as in a script, and one in
# a group of its own, as a shell with a prompt starts it.
PROMPT = """
import os, sys
os.open(sys.argv[1], os.O_RDWR)  # the first terminal that a session opens is its own
from mgwfbp.comm.launch import in_a_shell, leftovers
shell = {"SLURM_STEP_ID": "0", "SLURM_TASK_PID": str(os.getpid()), "SLURM_STEP_NUM_TASKS": "2", "PMI_RANK": "0"}
print(in_a_shell(shell), flush=True)
if os.fork() == 0:
    os.setpgid(0, 0)
    print(in_a_shell(shell), sorted(leftovers("MPICH", shell)) == sorted({*shell}), flush=True)
    print(in_a_shell({**shell, "HYDI_CONTROL_FD": "7"}), in_a_shell({**shell, "SLURM_TASK_PID": "gone"}), flush=True)
    os._exit(0)
os.wait()
"""


def test_a_command_at_a_prompt_in_a_step_is_alone():
    master, slave = pty.openpty()
    try:
        command = [sys.executable, "-c", PROMPT, os.ttyname(slave)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, start_new_session=True)
    finally:
        os.close(master)
        os.close(slave)
    assert done.stdout.split() == ["False", "True", "True", "False", "False"]


def test_without_a_terminal_nobody_is_at_a_prompt():
    code = "import sys; from mgwfbp.comm.launch import in_a_shell; print(in_a_shell({'SLURM_STEP_ID': '0', "
    code += "'SLURM_TASK_PID': sys.argv[1]}))"
    command = [sys.executable, "-c", code, str(os.getpid())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, start_new_session=True)
    assert done.stdout == "False\n"
    assert not in_a_shell({})


@pytest.mark.parametrize(
    ("nodes", "hosts", "found"),
    [
        ([0, 0, 2, 2], ["a", "a", "b", "b"], [0, 0, 2, 2]),
        ([0, 1, 2, 3], ["a", "a", "b", "b"], [0, 0, 2, 2]),  # MPI sees no shared memory
        ([0, 0, 2, 2], ["a", "b", "b", "c"], [0, 0, 0, 0]),  # a chain
        ([0, 1, 2], [None, None, None], [0, 1, 2]),  # a system without a name for its start
        ([0, 0, 2], ["x", "y", None], [0, 0, 2]),
        ([0], ["a"], [0]),
    ],
)
def test_who_shares_a_machine(nodes, hosts, found):
    assert joined(nodes, hosts) == found
    assert joined(hosts, nodes) == found


LOCAL = """
import sys
from mgwfbp.comm import World
world = World()
found = world.local_rank, world.local_size, world.threads, world.node_gather(world.rank)
sys.stdout.write(f"{found} {world.apart}\\n")  # in one piece: the ranks share the terminal
World()
"""


@needs_mpirun
@pytest.mark.skipif(
    MPIRUN is None or not Path(MPIRUN).with_name("mpichversion").exists() or sys.platform != "linux",
    reason="needs MPICH, and Linux, whose kernel gives its start a name",
)
def test_ranks_of_one_machine_find_each_other_where_mpi_sees_no_shared_memory():
    found = {}
    for apart in ("0", "1"):
        done = run(MPIRUN, "-n", 2, sys.executable, "-c", LOCAL, MPIR_CVAR_NOLOCAL=apart)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("MPI takes ranks of one machine for ranks of several") == int(apart)
        found[apart] = sorted(done.stdout.splitlines())
    assert [line.rpartition(" ")[0] for line in found["0"]] == [line.rpartition(" ")[0] for line in found["1"]]
    assert [line.rpartition(" ")[2] for line in found["0"] + found["1"]] == ["False", "False", "True", "True"]


@pytest.mark.parametrize(
    ("machines", "threads", "says"),
    [
        ([(4, 2, 1)], None, "4 ranks × 1 threads on 2 cores; use 2 ranks at most"),
        ([(2, 8, 4)], 64, "2 ranks × 64 threads on 8 cores; --threads 4 would be right"),
        ([(1, 8, 8), (4, 2, 1)], None, "4 ranks × 1 threads on 2 cores; use 2 ranks at most"),  # of the second machine
        ([(2, 8, 4)], None, None),
    ],
)
def test_advice_on_threads_can_be_followed(machines, threads, says):
    """Each machine: ranks, cores, and the threads of a rank by default."""
    others = []
    for ranks, cores, default in machines:
        several = SimpleNamespace(allgather=lambda mine: [*others, mine])
        world = SimpleNamespace(size=2, local_size=ranks, cores=cores, threads=default, own_cores=cores, comm=several)
        warnings = crowded(world, threads)
        others.append(((threads or default) * ranks - cores, ranks, threads or default, cores, False))
    assert warnings == ([f"warning: {says}"] if says else [])


@needs_mpirun
def test_too_many_threads_and_too_few_cores_are_said_once(tmp_path):
    command = ["train", "mlp", *SMALL, "--batch-size", "2", "--out", tmp_path / "run", "--threads", "64"]
    done = run(MPIRUN, "-n", 2, MGWFBP, *command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("× 64 threads on") == 1
    bound = run(MPIRUN, "-n", 2, "taskset", "-c", "0", MGWFBP, *command[:-2], "--overwrite")
    assert bound.returncode == 0, bound.stderr
    assert bound.stdout.count("bound to a single core") == 1
