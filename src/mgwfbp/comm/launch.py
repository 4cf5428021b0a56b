"""Was this process meant to be alone? The launchers' variables tell where the MPI library does not."""

from __future__ import annotations

import os
from collections.abc import Mapping


def meant_more(size: int, library: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """What to do if a world of one rank was meant to be larger, else None; `library` is the MPI's name.

    A launcher whose process manager the MPI library does not speak starts N worlds of one rank, each of which works,
    with exit code 0: the commonest mistake on clusters. mpirun's own variables are looked at first, because under it
    Slurm's belong to the launcher's proxies.
    """
    if size > 1:
        return None
    for variable, launcher in (
        ("OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun"),
        ("PMI_SIZE", "mpirun or srun --mpi=pmi2"),
    ):
        if variable in environment:
            return _advice(environment[variable], launcher, library)
    if "PMI_RANK" in environment or "PMIX_RANK" in environment:
        return None
    return _advice(environment.get("SLURM_STEP_NUM_TASKS", "1"), "srun", library)


def _advice(tasks: str, launcher: str, library: str) -> str | None:
    if not tasks.isdecimal() or int(tasks) <= 1:
        return None
    return (
        f"{launcher} started {tasks} processes, but each is a world of one rank: it does not speak to this MPI "
        f"({library}); use the mpirun of the same MPI, or srun --mpi=pmi2 with MPICH, --mpi=pmix with Open MPI"
    )
