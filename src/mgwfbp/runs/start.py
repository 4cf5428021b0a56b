"""A whole run from its options: the same start on all ranks, then the trainer with all its hooks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mgwfbp.comm import World, agree, choose_transport, poll_interval_s, use_own_device
from mgwfbp.data import Data, load, total_iterations
from mgwfbp.errors import UserError
from mgwfbp.kernels import Kernels, keep_freed_memory, kernel_set
from mgwfbp.models import MODELS, build
from mgwfbp.net import Net, fuse, head_layers
from mgwfbp.optim import Optimizer, factors, make_optimizer, rates_from_text
from mgwfbp.optim.lr import check_lr
from mgwfbp.runs.checkpoint import Checkpoint
from mgwfbp.runs.checkpoints import Checkpoints
from mgwfbp.runs.config import NO_MODEL, Config, checked_options, shared_options
from mgwfbp.runs.folder import RunFolder
from mgwfbp.runs.provenance import provenance
from mgwfbp.runs.record import Record, Validate
from mgwfbp.runs.resume import (
    check_resumed,
    ended_early,
    find_checkpoint,
    in_folder,
    options_of_run,
    run_folder_of,
)
from mgwfbp.runs.trained import load_weights
from mgwfbp.schedule import AffineCost, TableCost, find_policy
from mgwfbp.simulate.specs import cost_from_spec
from mgwfbp.train.loop import Hook, Summary, Trainer
from mgwfbp.version import __version__
from mgwfbp.watch.fault import FaultyData, fault_from_environment
from mgwfbp.watch.finite import NonFinite
from mgwfbp.watch.signals import Stop
from mgwfbp.watch.watchdog import Watchdog

HYPERPARAMETERS = ("lr", "momentum", "weight_decay", "nesterov")  # of Config, for the optimiser that knows them


def train(
    config: Config | Mapping[str, Any], world: World | None = None, network: AffineCost | TableCost | None = None
) -> Summary:
    """Train as `config` says on all ranks; returns the summary (the object of summary.json), equal on all ranks.

    A mapping has what is said on purpose, {"resume": "runs/lenet", "epochs": 20}: a run that is resumed is otherwise as
    it was. `network` is a cost to emulate instead of the one that `config.network` names. Collective. Raises UserError,
    on all ranks alike, for what the user can mend.
    """
    world = world or World()
    config, found = same_config(config, world)
    watchdog = Watchdog(config.stall_warn, config.stall_abort)
    with watchdog.watching(world):
        # Loaded before the threads are set: only libraries that are there can be told.
        kernels = load_kernels(world, config.kernels, config.math, config.share_gpu)
        watchdog.beat()
        start = same_start(config, world, kernels, network, found)
        watchdog.beat()
        return _fit(config, world, start, watchdog)


run = train  # the public name: `mgwfbp.train` is a room


def _fit(config: Config, world: World, start: Start, watchdog: Watchdog) -> Summary:
    """The trainer with all its hooks, from the start that is the same on all ranks to the summary."""
    record = Record(start.folder, config.log_every, config.timeline_iterations)
    record.config = start.used
    checkpoints = Checkpoints(
        start.folder.path if start.folder else None,
        config.checkpoint_every,
        config.keep_checkpoints,
        resume=False,
        record=record,
    )
    checkpoints.found, checkpoints.config, checkpoints.patience = start.checkpoint, config.to_dict(), watchdog.paused
    checkpoints.changes = start.used.get("changes", ())
    trainer = Trainer(
        start.net,
        start.data,
        start.optimizer,
        world=world,
        schedule=config.schedule,
        global_batch=start.global_batch,
        lr=config.lr_policy,
        clip_norm=config.clip_norm,
        skip=config.on_nan == "skip",
        shift=config.shift,
        flip=config.flip,
        seed=config.seed,
        network=start.network,
        transport=config.transport,
        algorithm=config.algorithm,
        wire=config.wire,
        replan=config.replan,
        profile_iterations=config.profile_iterations,
        threads=config.threads,
        hooks=[
            NonFinite(),
            watchdog,
            Stop(),
            record,
            Advice(config.threads, start.notes),
            Validate(record),
            checkpoints,
        ],
    )
    try:
        return trainer.fit(config.epochs, config.iterations)
    finally:
        start.data.close()
        if start.folder:
            start.folder.close()


class Advice(Hook):
    """Says `notes` at the start, which transport was taken on GPUs and why, and what keeps ranks from their cores."""

    def __init__(self, threads: int | None, notes: Sequence[str] = ()) -> None:
        self.threads, self.notes = threads, notes

    def open(self, trainer: Trainer) -> None:
        """Say it. Collective."""
        for note in self.notes:
            trainer.say(note)
        transport = trainer.planner.transport
        if transport is not None and transport.reason and trainer.net.kernels.name == "cupy":
            trainer.say(f"transport {transport.name}: {transport.reason}")
        for warning in crowded(trainer.world, self.threads):
            trainer.say(warning)


def crowded(world: World, threads: int | None) -> list[str]:
    """What keeps ranks from their cores, a line each, the same on all ranks. Collective."""
    each = threads or world.threads
    bound = world.size > 1 and world.own_cores == 1 < (os.cpu_count() or 1)
    everyone = world.comm.allgather((each * world.local_size - world.cores, world.local_size, each, world.cores, bound))
    warnings = []
    if any(bound for *_, bound in everyone):
        warnings.append(
            "warning: a rank is bound to a single core, which its comm thread and its backward pass share; "
            "mpirun --bind-to none (Open MPI), -bind-to none (MPICH), srun --cpus-per-task=2 or more; "
            "OMP_PROC_BIND does so, too: unset it"
        )
    over, ranks, each, cores, _ = max(everyone)  # of the machine that is worst off
    if over > 0:
        advice = f"--threads {cores // ranks} would be right" if ranks <= cores else f"use {cores} ranks at most"
        warnings.append(f"warning: {ranks} ranks × {each} threads on {cores} cores; {advice}")
    return warnings


def load_kernels(world: World, name: str | None, math: str | None = None, share_gpu: bool = False) -> Kernels:
    """The kernel set `name`, loaded by one rank of each machine first: it compiles, the others read what it cached.

    On GPUs each rank first takes its own, or one that others have, too, if they `share_gpu`. What is not given comes
    from MGWFBP_MATH and MGWFBP_SHARE_GPU. Freed memory is kept from here on: a run's arrays have the same sizes in
    every iteration. Collective. Raises UserError on all ranks.
    """
    kernels = None
    on_gpu = (name or os.environ.get("MGWFBP_KERNELS") or "cupy") == "cupy"
    use_own_device(world, on_gpu, share_gpu or os.environ.get("MGWFBP_SHARE_GPU", "") in ("1", "true", "yes"))
    for turn in (True, False):
        with world.together():
            if (world.local_rank == 0) == turn:
                kernels = kernel_set(name, quiet=world.rank > 0, math=math or os.environ.get("MGWFBP_MATH") or "fp32")
    assert kernels is not None
    if kernels.name != "cupy":
        keep_freed_memory()
    return kernels


def same_config(given: Config | Mapping[str, Any], world: World) -> tuple[Config, Checkpoint | None]:
    """(the run's options on all ranks, on rank 0 the checkpoint that it goes on from). Collective. Raises SharedError.

    What `given` does not say is as it was in the run that is resumed. Where files lie may differ from rank to rank.
    """
    with world.together():
        said = checked_options(given)
    found, taken = None, None
    with world.together():
        if world.rank == 0:
            found = find_checkpoint(said)
            if not isinstance(given, Config):
                taken = {name: value for name, value in options_of_run(said, found).items() if name not in said}
    taken = world.comm.bcast(taken, root=0)
    with world.together():
        config = given if isinstance(given, Config) else Config(**{"model": "", **(taken or {}), **said})
        if not config.model:
            raise UserError(NO_MODEL)
    return config, found


class Start(NamedTuple):
    """A run about to begin. `used` is config.json's object. `folder` and `checkpoint` are None on all ranks but 0."""

    net: Net
    data: Data
    optimizer: Optimizer
    global_batch: int
    network: AffineCost | TableCost | None
    folder: RunFolder | None
    checkpoint: Checkpoint | None
    notes: list[str]
    used: dict[str, Any]


def same_start(
    config: Config,
    world: World,
    kernels: Kernels,
    network: AffineCost | TableCost | None = None,
    checkpoint: Checkpoint | None = None,
) -> Start:
    """Load the data, build the net, compare the ranks, make the run folder. Collective.

    Raises UserError on all ranks if one cannot start, or if ranks differ in their options, version or model: then
    nothing was sent but the comparison.
    """
    with world.together():
        find_policy(config.schedule)
        poll_interval_s()
        choose_transport(config.transport, kernels.xp)
        if network is None and config.network:
            network = cost_from_spec(config.network)
        given = {name: getattr(config, name) for name in HYPERPARAMETERS}
        optimizer = make_optimizer(config.optimizer, given, Config("").to_dict())
        if config.rates:
            optimizer.rates = rates_from_text(config.rates)
        global_batch = config.global_batch(world.size)
        if global_batch < world.size:
            raise UserError(
                f"a global batch of {global_batch} is too small for {world.size} ranks: each needs a sample; "
                f"use --global-batch-size {world.size} or more, or fewer ranks"
            )
        data = open_data(config, world)
        if config.shift >= min(data.shape[:2]):
            raise UserError(f"--shift {config.shift} moves images of {data.shape} out of sight; use less")
        notes = []
        if global_batch > len(data.train_labels):
            notes.append(
                f"a global batch of {global_batch:,} is more than there is: all {len(data.train_labels):,} samples"
            )
            global_batch = len(data.train_labels)
        iterations = total_iterations(len(data.train_labels), global_batch, config.epochs, config.iterations)
        check_lr(config.lr_policy, config.lr, iterations)
        net = make_net(config, data, kernels)
        factors(net.arena, optimizer.rates)
    options, about = config.to_dict(), provenance(world)
    agree(
        world.comm,
        "model, options or version",
        [
            f"net {net.name}",
            *net.arena.description(),
            *(f"{name}={options[name]}" for name in shared_options()),
            f"files {data.fingerprint}",
            f"emulated network {network}",
            f"kernel set {kernels.name}",
            f"mgwfbp {__version__}",
        ],
    )
    folder, changes = None, []
    with world.together():
        if (fault := fault_from_environment(world.size)) is not None:
            data = FaultyData(data, fault, world.rank)
        if world.rank == 0:
            if checkpoint is not None:
                now, note = check_resumed(checkpoint, config, global_batch, net, data, optimizer)
                changes = [*checkpoint.record.get("changes", []), *(change._asdict() for change in now)]
                notes += [*(f"changed: {c.option} from {c.before} to {c.now}" for c in now), *filter(None, [note])]
            elif config.weights:  # the trainer gives all ranks those of rank 0
                but = head_layers(net) if config.replace_head else []
                load_weights(net, config.weights, but=tuple(but))
                notes += [f"begins with the weights of {config.weights}" + (f", but {', '.join(but)}" if but else "")]
            place = run_folder_of(config, checkpoint)
            overwrite = config.overwrite or (checkpoint is None and ended_early(config))
            resumed = checkpoint.iteration if checkpoint and in_folder(checkpoint, place) else None
            folder = RunFolder(place, config.model, overwrite, resumed)
            about |= {"world_size": world.size, "threads": config.threads or world.threads, "kernels": kernels.name}
    used = {**options, "used": about, **({"changes": changes} if changes else {})}
    return Start(net, data, optimizer, global_batch, network, folder, checkpoint, notes, used)


def make_net(config: Config, data: Data, kernels: Kernels) -> Net:
    """The net that `config` names, for images and classes of `data`. Raises UserError, with what would fit it."""
    try:
        net = build(config.model, data.shape, data.classes)
    except UserError as error:
        usual = build(config.model).input.shape if config.model in MODELS else data.shape
        if usual == data.shape:
            raise
        height, width, channels = usual
        images = f"--data images:{height} or " if channels == 3 and height == width and height >= 64 else "--data "
        raise UserError(
            f"{error}; {config.model} is made for {height}×{width}×{channels} and {data.name} has "
            f"{'×'.join(map(str, data.shape))}: {images}synthetic:{height}x{width}x{channels}x10"
        ) from None
    net.name = config.model
    for head in net.heads:
        head.loss.smoothing = config.label_smoothing
    if config.freeze:
        net.freeze(*(part.strip() for part in config.freeze.split(",")))
    fuse(net).allocate(seed=config.seed, kernels=kernels)
    return net


def open_data(config: Config, world: World) -> Data:
    """The data set that `config` names. Raises UserError as `load` does."""
    images = config.data.partition(":")[0] == "images"
    if images and config.shift:
        raise UserError("--shift is for small images in memory; images are cropped at random anyway")
    threads = config.decode_threads or min(4, config.threads or world.threads)
    return load(config.data, config.data_dir, config.seed, threads=threads, skip=config.on_bad_image == "skip")
