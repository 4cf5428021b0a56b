"""Was this process meant to be alone? The launchers' variables tell where the MPI library does not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

# (how many processes it started, which of them this is, who), of the launcher that is nearest to this process first:
# under mpirun Slurm's variables belong to the launcher's proxies.
LAUNCHERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun"),
    ("PMI_SIZE", "PMI_RANK", "mpirun or srun --mpi=pmi2"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun"),
)
# What MPI libraries look at to find their process manager.
MANAGERS = ("PMI_", "PMIX_")

# What launchers leave to the processes they start, beside what their users set for MPI (OMPI_MCA_pml, PMIX_MCA_gds, …).
LEFT = (
    "PMI_", "PMIX_", "PRTE_", "PALS_", "HYDI_", "MPI_LOCAL", "SLURM_", "OMPI_COMM_", "OMPI_MCA_orte_", "OMPI_MCA_ess",
    "OMPI_MCA_pmix", "OMPI_MCA_prte", "OMPI_MCA_schizo", "OMPI_MCA_initial_wdir", "OMPI_MCA_num_procs",
    "OMPI_MCA_shmem_RUNTIME",
)  # fmt: skip
SET = ("PMIX_MCA_", "PRTE_MCA_")


class Meant(NamedTuple):
    """What this process is by the variables of the `launcher`: rank `rank` (in the `variable`) of `size`."""

    rank: str
    size: int
    variable: str
    launcher: str


def meant(environment: Mapping[str, str] = os.environ) -> Meant | None:
    """What the nearest launcher means this process to be; None if it was started alone, or nobody knows."""
    for size, rank, launcher in LAUNCHERS:
        if size in environment:
            count = environment[size]
            if not count.isdecimal() or int(count) <= 1:
                return None
            return Meant(environment.get(rank, "?"), int(count), rank, launcher)
    return None


def wrong_launcher(library: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """What to do if `library` (MPI's own version text) will end this process at its start, else None.

    MPICH without PMIx stops in MPI_Init under a launcher that speaks nothing else, with an internal error that names
    neither of the two.
    """
    name = " ".join((library.strip("\0 ").splitlines() or ["this MPI"])[0].split())
    if "MPICH" not in library or "pmix" in library.lower() or "PMI_RANK" in environment or _alone(environment):
        return None
    if "OMPI_COMM_WORLD_SIZE" in environment:
        return (
            f"Open MPI's mpirun started this process, but its MPI library is another one ({name}): "
            "use the mpirun that belongs to it, which stands beside its Python"
        )
    if "PMIX_RANK" in environment:
        return (
            f"the launcher speaks PMIx, which the MPI library does not ({name}): "
            "use srun --mpi=pmi2, or the mpirun that belongs to the library"
        )
    return None


def leftovers(library: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """The variables that would keep a process that is alone from starting `library`: somebody else's.

    In a shell that srun opened they are the shell's own, which has its one place in the step for as long as it lasts:
    the library would wait for the others, or find the place taken by the command before. And a launcher of one process
    needs no process manager, so it may be one that the library does not speak.
    """
    if in_a_shell(environment):
        return [name for name in environment if name.startswith((*MANAGERS, "SLURM_STEP", "SLURM_TASK_PID"))]
    foreign = "PMI_RANK" not in environment and "MPICH" in library and "pmix" not in library.lower()
    return [name for name in environment if name.startswith(MANAGERS)] if foreign and _alone(environment) else []


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` for a process that is to be a world of its own, with the same MPI: what its user set remains."""
    return {name: value for name, value in environment.items() if not name.startswith(LEFT) or name.startswith(SET)}


def in_a_shell(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process was started from a prompt in a step of Slurm's, as salloc or srun --pty open one.

    It then has the step's variables without being one of its tasks. What srun starts has no terminal; the task that
    has one, with --pty, is in its own process group with all that a script of it starts, while a shell with a prompt
    gives each command a group.
    """
    if "HYDI_CONTROL_FD" in environment or "OMPI_COMM_WORLD_SIZE" in environment or "SLURM_STEP_ID" not in environment:
        return False
    try:
        if os.getpgid(int(environment.get("SLURM_TASK_PID", ""))) == os.getpgrp():
            return False
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except (OSError, ValueError):
        return False
    return True


def meant_more(size: int, library: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """What to do if a world of one rank was meant to be larger, else None; `library` is the MPI's name.

    A launcher whose process manager the MPI library does not speak starts N worlds of one rank, each of which works,
    with exit code 0: the commonest mistake on clusters.
    """
    found = meant(environment)
    if size > 1 or found is None:
        return None
    if found.launcher == "srun" and ("PMI_RANK" in environment or "PMIX_RANK" in environment):
        return None
    return (
        f"{found.launcher} started {found.size} processes, but each is a world of one rank: it does not speak to this "
        f"MPI ({library}); use the mpirun of the same MPI, or srun --mpi=pmi2 with MPICH, --mpi=pmix with Open MPI"
    )


def _alone(environment: Mapping[str, str]) -> bool:
    """Whether the launcher started one process only, or a shell, from which this one was started."""
    sizes = [environment[size] for size, _, _ in LAUNCHERS if size in environment]
    return sizes[:1] == ["1"] or in_a_shell(environment)
