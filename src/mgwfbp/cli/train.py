"""mgwfbp train"""

from __future__ import annotations

from typing import Any

import click

from mgwfbp.cli.options import config_option, examples, options_of, plugin
from mgwfbp.models import MODELS
from mgwfbp.runs.config import Config, options

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
        mpirun -n 2 mgwfbp train mlp --data synthetic:28x28x1x10 --schedule bucket:256kB
        mpirun -n 2 mgwfbp train resnet20 --schedule best --data cifar10 --data-dir ~/cifar
    """),
)
@click.argument("model")
@config_option
@plugin
@options_of(Config, options())
def command(**given: Any) -> int:
    """Train MODEL on all ranks."""
    config = Config(**given)
    from mgwfbp.comm import World
    from mgwfbp.runs.start import train

    summary = train(config, World(command="train"))
    return int(len(set(summary["parameters_sha256"])) > 1)  # said in the last line of the output
