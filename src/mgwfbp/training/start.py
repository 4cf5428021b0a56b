"""The same start on all ranks: what was asked for is checked, compared between ranks, and the weights are broadcast."""

from __future__ import annotations

import os
from typing import NamedTuple

import mgwfbp
from mgwfbp.arena import to_host
from mgwfbp.comm import World, agree, poll_interval_s, use_own_device
from mgwfbp.data import Data, image_folder, load
from mgwfbp.errors import UserError
from mgwfbp.fusion import fuse
from mgwfbp.kernels import Kernels, kernel_set
from mgwfbp.models import build
from mgwfbp.network import Network
from mgwfbp.schedule import AffineCost, TableCost, find_policy
from mgwfbp.training.checkpoint import Checkpoint
from mgwfbp.training.config import Config
from mgwfbp.training.lr import check_lr
from mgwfbp.training.resume import ended_early, find_checkpoint, in_folder, run_folder_of
from mgwfbp.training.run_folder import RunFolder

# Where files lie and how many threads work may differ from node to node; what is computed may not.
LOCAL_OPTIONS = ("out", "data_dir", "overwrite", "threads", "decode_threads", "kernels", "network", "resume")


def crowded(world: World, threads: int | None) -> list[str]:
    """What keeps ranks from their cores, a line each, the same on all ranks. Collective."""
    wanted = (threads or world.threads) * world.local_size
    bound, over = world.max([world.size > 1 and world.own_cores == 1 < (os.cpu_count() or 1), wanted > world.cores])
    warnings = []
    if bound:
        warnings.append(
            "warning: a rank is bound to a single core, which its comm thread and its backward pass share; "
            "mpirun --bind-to none (Open MPI), -bind-to none (MPICH), srun --cpus-per-task=2 or more"
        )
    if over:
        warnings.append(
            f"warning: {world.local_size} ranks × {threads or world.threads} threads on {world.cores} cores; "
            f"--threads {max(1, world.cores // world.local_size)} would be right"
        )
    return warnings


def open_data(config: Config, world: World) -> Data:
    """The data set that `config` names. Raises UserError as `load` and `image_folder` do."""
    if config.data.partition(":")[0] != "images":
        return load(config.data, config.data_dir, config.seed)
    if config.shift:
        raise UserError("--shift is for small images in memory; images are cropped at random anyway")
    threads = config.decode_threads or min(4, config.threads or world.threads)
    return image_folder(config.data, config.data_dir, threads=threads, skip=config.on_bad_image == "skip")


class Start(NamedTuple):
    """A run about to begin; the parameters are equal on all ranks. `folder`, `checkpoint`: None on all ranks but 0."""

    network: Network
    data: Data
    global_batch: int
    folder: RunFolder | None
    checkpoint: Checkpoint | None


def load_kernels(world: World, name: str | None, math: str | None = None, share_gpu: bool = False) -> Kernels:
    """The kernel set `name`, loaded by one rank of each machine first: it compiles, the others read what it cached.

    On GPUs each rank first takes its own, or one that others have, too, if they `share_gpu`. What is not given comes
    from MGWFBP_MATH and MGWFBP_SHARE_GPU. Collective. Raises UserError on all ranks.
    """
    kernels = None
    on_gpu = (name or os.environ.get("MGWFBP_KERNELS") or "cupy") == "cupy"
    use_own_device(world, on_gpu, share_gpu or os.environ.get("MGWFBP_SHARE_GPU", "") in ("1", "true", "yes"))
    for turn in (True, False):
        with world.together():
            if (world.local_rank == 0) == turn:
                kernels = kernel_set(name, quiet=world.rank > 0, math=math or os.environ.get("MGWFBP_MATH") or "fp32")
    assert kernels is not None
    return kernels


def same_start(config: Config, world: World, kernels: Kernels, emulated: AffineCost | TableCost | None) -> Start:
    """Load the data, build the net, compare the ranks, make the run folder, broadcast the weights. Collective.

    Raises UserError on all ranks if one cannot start, or if ranks differ in their options, version or model: then
    nothing was sent but the comparison.
    """
    with world.together():
        find_policy(config.schedule)
        poll_interval_s()
        global_batch = config.global_batch(world.size)
        data = open_data(config, world)
        if config.shift >= min(data.shape[:2]):
            raise UserError(f"--shift {config.shift} moves images of {data.shape} out of sight; use less")
        global_batch = min(global_batch, len(data.train_labels))
        iterations = config.total_iterations(len(data.train_labels), global_batch)
        check_lr(config.lr_policy, config.lr, iterations)
        network = build(config.model, data.shape, data.classes)
        for head in network.heads:
            head.loss.smoothing = config.label_smoothing
        fuse(network).allocate(seed=config.seed, kernels=kernels)
    options = [f"{name}={value}" for name, value in config.to_dict().items() if name not in LOCAL_OPTIONS]
    model = [f"network {network.name}", *network.arena.description()]
    agree(
        world.comm,
        "model, options or version",
        [
            *model,
            *options,
            f"files {data.fingerprint}",
            f"emulated network {emulated}",
            f"kernel set {kernels.name}",
            f"mgwfbp {mgwfbp.__version__}",
        ],
    )
    folder = checkpoint = None
    with world.together():
        if world.rank == 0:
            checkpoint = find_checkpoint(config, global_batch, iterations, network.arena.fingerprint())
            place = run_folder_of(config, checkpoint)
            overwrite = config.overwrite or (checkpoint is None and ended_early(config))
            resumed = checkpoint.iteration if checkpoint and in_folder(checkpoint, place) else None
            folder = RunFolder(place, config.model, overwrite, resumed)
            threads = config.threads or world.threads
            folder.write(
                "config.json",
                {**config.to_dict(), "world_size": world.size, "threads": threads, "kernels": kernels.name},
            )
    parameters = to_host(network.arena.parameters)
    world.comm.Bcast(parameters, root=0)
    network.arena.parameters[...] = kernels.xp.asarray(parameters)
    return Start(network, data, global_batch, folder, checkpoint)
