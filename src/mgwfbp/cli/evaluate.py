"""mgwfbp evaluate"""

from __future__ import annotations

import json

import click

from mgwfbp.cli.options import argument, examples, option, plugin


@click.command(
    "evaluate",
    short_help="Loss and accuracy of a trained net.",
    **examples("""
        mpirun -n 2 mgwfbp evaluate runs/lenet
        mgwfbp evaluate runs/resnet20 --data cifar10 --data-dir ~/cifar
        mgwfbp evaluate weights.safetensors --data mnist5k --json
    """),
)
@argument("trained", metavar="RUN|FILE")
@plugin
@option("--data", metavar="NAME", help="Another data set.  [default: the validation part of the run's own]")
@option("--data-dir", metavar="FOLDER", help="Where its files are.  [default: where the run had them]")
@option("--kernels", metavar="SET", help="numpy, fast or cupy.  [default: the fastest that works here]")
@option("--json", "as_json", is_flag=True, envvar=None, help="Print a JSON object.")
def command(trained: str, data: str | None, data_dir: str | None, kernels: str | None, as_json: bool) -> None:
    """Mean loss and accuracy of the net in a run folder (its newest checkpoint) or an exported file.

    All ranks share the samples.
    """
    from mgwfbp.comm import World
    from mgwfbp.runs.judge import judge

    world = World(command="evaluate")
    found = judge(world, trained, data, data_dir, kernels)
    if world.rank == 0:
        if as_json:
            click.echo(json.dumps(found))
        else:
            judged = f"{found['validated_on']} accuracy {found['accuracy']:.4f}, loss {found['loss']:.4f}"
            click.echo(f"{found['model']}: {judged}, {found['samples']:,} images of {found['data']}")
