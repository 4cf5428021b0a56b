"""Was this process meant to be alone? The launchers' variables tell where the MPI library does not."""

from __future__ import annotations

import os
from collections.abc import Mapping


def wrong_launcher(library: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """What to do if `library` (MPI's own version text) will end this process at its start, else None.

    MPICH without PMIx stops in MPI_Init under a launcher that speaks nothing else, with an internal error that names
    neither of the two.
    """
    name = " ".join((library.strip("\0 ").splitlines() or ["this MPI"])[0].split())
    if "MPICH" not in library or "pmix" in library.lower() or "PMI_RANK" in environment:
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
