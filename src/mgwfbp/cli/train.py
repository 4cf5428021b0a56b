"""mgwfbp train"""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from mgwfbp.cli.options import argument, config_option, examples, options_of, plugin
from mgwfbp.errors import UserError
from mgwfbp.models import MODELS
from mgwfbp.runs.config import NO_MODEL, Config, checked_options, options

HELP = """
The first iterations send one message a layer and are measured; then the schedule is computed and followed.
The run folder gets config.json, metrics.jsonl, schedule.json, workload.json, network.json, timeline.json (open it in
chrome://tracing or ui.perfetto.dev) and summary.json.
"""


@click.command(
    "train",
    short_help="Train a network on all ranks.",
    help=f"Train MODEL ({', '.join(MODELS)}) on all ranks.\n\n{HELP}",
    **examples("""
        mpirun -n 2 mgwfbp train lenet --data mnist5k --epochs 3 --out runs/lenet
        mpirun -n 4 mgwfbp train resnet20 --data cifar10 --data-dir ~/cifar --global-batch-size 128 --lr 0.1
        mpirun -n 2 mgwfbp train --config jobs/resnet20-mnist5k.toml --out runs/resnet20
        mpirun -n 2 mgwfbp train --resume runs/lenet --epochs 6
        mpirun -n 2 mgwfbp train lenet --weights runs/lenet --replace-head --freeze 'conv*' --data arrays:mine.npz
        mpirun -n 2 mgwfbp train mlp --data synthetic:28x28x1x10 --schedule bucket:256kB
        mpirun -n 2 mgwfbp train resnet20 --schedule best --data cifar10 --data-dir ~/cifar
    """),
)
@argument("model", required=False)
@config_option
@plugin
@options_of(Config, options())
@click.pass_context
def command(ctx: click.Context, **given: Any) -> int:
    """Train MODEL on all ranks."""
    # What is not said on purpose is as it was in the run that is resumed.
    said = {name: value for name, value in given.items() if ctx.get_parameter_source(name) != ParameterSource.DEFAULT}
    checked_options(said)  # what is wrong with it is said at once
    Config(**{"model": "", **said})
    if not said.get("model") and not said.get("resume"):
        raise UserError(NO_MODEL)
    from mgwfbp.comm import World
    from mgwfbp.runs.start import train

    summary = train(said, World(command="train"))
    return int(len(set(summary["parameters_sha256"])) > 1)  # said in the last line of the output
