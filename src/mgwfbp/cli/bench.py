"""mgwfbp bench"""

from __future__ import annotations

import click

from mgwfbp.cli.options import examples, option
from mgwfbp.fields import bytes_from_text
from mgwfbp.files import check_writable, write_json


@click.group("bench", short_help="Measure what this machine and its network can do.")
def command() -> None:
    """Measure what this machine and its network can do."""


@command.command(
    "allreduce",
    **examples("""
        mpirun -n 4 mgwfbp bench allreduce -o network.json
        mpirun -n 2 mgwfbp bench allreduce --largest 256MiB
    """),
)
@option("-o", "--output", metavar="NETWORK.json", help="Where to write the measured cost.")
@option("--largest", default="16MiB", metavar="SIZE", help="The largest message.")
def allreduce(output: str | None, largest: str) -> None:
    """Time the all-reduce that training uses, from 256 B to the largest message, on all ranks."""
    if output:
        check_writable(output)
    nbytes = bytes_from_text(largest, "--largest")
    from mgwfbp.comm import World, agree, measure_all_reduce

    world = World(command="bench")
    agree(world.comm, "options", [f"largest {nbytes}"])
    network = measure_all_reduce(world, nbytes)
    with world.together():
        if world.rank == 0:
            click.echo(f"{'bytes':>12}  {'µs':>10}  {'MB/s':>8}")
            for size, seconds in zip(network["nbytes"], network["seconds"], strict=True):
                click.echo(f"{size:>12,}  {seconds * 1e6:>10.1f}  {size / max(seconds, 1e-12) / 1e6:>8.0f}")
            a, b = network["a_s"], network["b_s_per_byte"]
            click.echo(
                f"{world.size} ranks: {a * 1e6:.1f} µs a message + {b * 1e9:.4f} ns a byte, R² {network['r2']:.3f}"
            )
            if output:
                write_json(output, network)
                click.echo(f"written to {output}")
