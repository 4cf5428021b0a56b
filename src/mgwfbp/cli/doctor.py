"""mgwfbp doctor"""

from __future__ import annotations

import click

from mgwfbp.cli.options import examples, option
from mgwfbp.files import json_text


@click.command(
    "doctor",
    short_help="What this job has, and what is wrong with it.",
    **examples("""
        mgwfbp doctor
        mpirun -n 2 mgwfbp doctor
        srun --mpi=pmi2 -N 2 --ntasks-per-node=1 mgwfbp doctor --json
    """),
)
@option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """Look at MPI, launcher, cores, kernel sets, GPUs and a first message on all ranks, and say what to do.

    Exits with 1 if something is wrong.
    """
    from mgwfbp.bench.doctor import PROBLEM, examine
    from mgwfbp.comm import World

    world = World(command="doctor")
    findings = examine(world)
    if world.rank == 0 and as_json:
        rows = [finding._asdict() for finding in findings]
        click.echo(json_text({"ranks": world.size, "findings": rows}, indent=1))
    elif world.rank == 0:
        for finding in findings:
            click.echo(f"{finding.level:<8} {finding.topic:<13} {finding.text}")
            if finding.advice:
                click.echo(f"{'':<8} {'':<13} → {finding.advice}")
    return int(any(finding.level == PROBLEM for finding in findings))
