"""mgwfbp train"""

from __future__ import annotations

from typing import Any

import click

from mgwfbp.cli.options import config_option, examples, option
from mgwfbp.models import MODELS
from mgwfbp.simulate.networks import cost_from_spec
from mgwfbp.training.config import Config

DEFAULT = Config("")

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
@option(
    "--data",
    default=DEFAULT.data,
    help="mnist5k, mnist (:32 pads to 32×32), cifar10, images:SIZE or synthetic:HEIGHTxWIDTHxCHANNELSxCLASSES.",
)
@option("--data-dir", metavar="FOLDER", help="Where the files are: of mnist, cifar10, or train/CLASS/*.jpg, val/… .")
@option("--out", metavar="FOLDER", help="The run folder.  [default: runs/MODEL-DATE-TIME]")
@option("--overwrite", is_flag=True, help="Replace another run's files in the run folder.")
@option(
    "--schedule",
    default=DEFAULT.schedule,
    help="wfbp, single, mgwfbp, optimal, pipelined, sharded, best, bucket:SIZE or dear:SIZE.",
)
@option("--network", metavar="SPEC", help="Let messages take as long as on this network (k80-10gbe:64, a=…,b=…).")
@option(
    "--replan",
    default=DEFAULT.replan,
    help="Measure and plan again: auto (when iterations take longer or shorter than predicted), never, or every N.",
)
@option("--epochs", default=DEFAULT.epochs, help="How often every training sample is seen.")
@option("--iterations", type=int, help="Stop after so many iterations.")
@option("--batch-size", default=DEFAULT.batch_size, help="Samples a rank and iteration.")
@option("--global-batch-size", type=int, help="Samples of all ranks together, instead of --batch-size.")
@option("--lr", default=DEFAULT.lr, help="Learning rate at the start.")
@option(
    "--lr-policy",
    default=DEFAULT.lr_policy,
    help="How it changes: fixed, step:…, multistep:…, exp:…, inv:…, poly:…, sigmoid:….",
)
@option("--momentum", default=DEFAULT.momentum, help="Momentum of SGD.")
@option("--weight-decay", default=DEFAULT.weight_decay, help="Weight decay (L2).")
@option("--nesterov", is_flag=True, help="Nesterov's momentum.")
@option("--clip-norm", type=float, help="Scale gradients down to this global norm.")
@option("--on-nan", default=DEFAULT.on_nan, help="A gradient that is not finite: stop, or skip its iteration.")
@option("--shift", default=DEFAULT.shift, help="Shift training images at random by up to so many pixels.")
@option("--flip", is_flag=True, help="Mirror training images at random.")
@option("--label-smoothing", default=DEFAULT.label_smoothing, help="Share of the target spread over all classes.")
@option("--on-bad-image", default=DEFAULT.on_bad_image, help="stop, or skip it and take the next one.")
@option("--decode-threads", type=int, help="Threads that decode images.  [default: as --threads, 4 at most]")
@option("--seed", default=DEFAULT.seed, help="Fixes weights, order of samples, dropout.")
@option("--profile-iterations", default=DEFAULT.profile_iterations, help="Unmerged iterations before the plan.")
@option("--log-every", default=DEFAULT.log_every, help="Iterations between two progress lines.")
@option("--timeline-iterations", default=DEFAULT.timeline_iterations, help="Planned iterations in timeline.json.")
@option("--checkpoint-every", type=int, help="Iterations between two checkpoints.  [default: an epoch]")
@option("--keep-checkpoints", default=DEFAULT.keep_checkpoints, help="How many checkpoints stay.")
@option(
    "--resume", metavar="FOLDER|auto", help="Go on from the newest checkpoint there; auto: in --out, if there is one."
)
@option("--stall-warn", default=DEFAULT.stall_warn, help="Seconds without progress until a rank says where it is.")
@option("--stall-abort", default=DEFAULT.stall_abort, help="Seconds without progress until the job ends; 0: never.")
@option("--threads", type=int, help="BLAS threads a rank.  [default: cores ÷ ranks on this machine]")
@option("--kernels", metavar="SET", help="numpy, fast or cupy.  [default: the fastest that works here]")
@option("--math", default=DEFAULT.math, help="On GPUs: fp32, or tf32 on tensor cores.")
@option("--share-gpu", is_flag=True, help="Let ranks share a GPU.")
@option("--transport", default=DEFAULT.transport, help="On GPUs: auto, staged, device or device-blocking.")
def command(**options: Any) -> int:
    """Train MODEL on all ranks."""
    config = Config(**options)
    emulated = cost_from_spec(config.network) if config.network else None
    from mgwfbp.comm import World
    from mgwfbp.training.loop import train

    summary = train(config, World(command="train"), emulated)
    return int(len(set(summary["parameters_sha256"])) > 1)  # said in the last line of the output
