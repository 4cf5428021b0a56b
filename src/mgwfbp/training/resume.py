"""Take a run up where a checkpoint left it, and leave checkpoints behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mgwfbp.arena import to_host
from mgwfbp.comm import World, table_of
from mgwfbp.errors import UserError
from mgwfbp.files import read_json
from mgwfbp.network import Network
from mgwfbp.schedule import AffineCost, Bucket, Schedule, predict
from mgwfbp.schedule.workload import ALL_REDUCE, workload_from_dict, workload_to_dict
from mgwfbp.training.checkpoint import Checkpoint, newest, save
from mgwfbp.training.config import Config
from mgwfbp.training.optimizer import SGD
from mgwfbp.training.planning import Plan
from mgwfbp.training.record import Record

# What a resumed run may be told otherwise: where things lie, what is printed and planned. The rest decides the weights.
FREE = {
    "stall_warn", "stall_abort", "transport", "share_gpu",
    "out", "overwrite", "resume", "data_dir", "threads", "decode_threads", "kernels", "log_every", "replan", "network",
    "checkpoint_every", "keep_checkpoints", "timeline_iterations", "profile_iterations", "schedule",
    "batch_size", "global_batch_size",
}  # fmt: skip


# With other ones than before, the plan of before is worth nothing.
PLANNED_BY = ("schedule", "network", "kernels", "threads", "batch_size")


def find_checkpoint(config: Config, global_batch: int, iterations: int, fingerprint: str) -> Checkpoint | None:
    """The checkpoint that `config.resume` means; None to start from the beginning. Rank 0 calls it.

    Raises UserError if there is none where one was named, if the run that it is from was another one, or if all its
    `iterations` are done.
    """
    if config.resume is None:
        return None
    automatic = config.resume == "auto"
    if automatic and config.out is None:
        raise UserError("--resume auto: name the run folder, --out FOLDER")
    where = Path(str(config.out) if automatic else config.resume)
    found = newest(where)
    if found is None:
        if automatic:
            return None
        raise UserError(f"--resume {where}: there is no checkpoint (FOLDER/checkpoints/iteration-…)")
    before = found.record.get("config")
    if not isinstance(before, dict):
        raise UserError(f"checkpoint {found.path}: it lacks the run's config")
    other = _difference(before, config)
    if other is not None:
        raise UserError(
            f"checkpoint {found.path} is from a run with {other.replace('_', '-')} {before.get(other)}, "
            f"this one has {getattr(config, other)}; resume with the same options"
        )
    for name, value in (("global_batch_size", global_batch), ("layout", fingerprint)):
        if found.record.get(name) != value:
            raise UserError(
                f"checkpoint {found.path} has {name.replace('_', ' ')} {found.record.get(name)}, this run {value}: "
                f"it would not be the same training; keep the global batch with --global-batch-size"
            )
    if found.iteration >= iterations:
        raise UserError(f"checkpoint {found.path}: all {iterations} iterations are done, there is nothing to resume")
    return found


def _difference(before: dict[str, Any], config: Config) -> str | None:
    """The first option that decides the weights and is another than before."""
    defaults = Config("").to_dict()  # of options that there were not yet when the checkpoint was written
    return next(
        (k for k, value in config.to_dict().items() if k not in FREE and before.get(k, defaults[k]) != value), None
    )


def ended_early(config: Config) -> bool:
    """Whether `--resume auto` finds its own run's folder, that ended before its first checkpoint: nothing is lost."""
    if config.resume != "auto" or config.out is None or (Path(config.out) / "summary.json").exists():
        return False
    try:
        return _difference(read_json(Path(config.out) / "config.json", "run"), config) is None
    except UserError:
        return False


def in_folder(checkpoint: Checkpoint, folder: str | None) -> bool:
    """Whether it is one of the run folder `folder`."""
    return folder is not None and checkpoint.path.resolve().parent.parent == Path(folder).resolve()


def run_folder_of(config: Config, checkpoint: Checkpoint | None) -> str | None:
    """Where a run goes on writing: --out, or else the folder that it is resumed from."""
    if config.out is not None or checkpoint is None or checkpoint.path.parent.name != "checkpoints":
        return config.out
    return str(checkpoint.path.parent.parent)


def restore(
    config: Config, world: World, checkpoint: Checkpoint | None, network: Network, optimizer: SGD, record: Record
) -> tuple[int, Plan | None]:
    """(iterations that are done, the plan to go on with): (0, None) without a checkpoint. Collective.

    Rank 0 has read the checkpoint and gives everyone theirs. At another number of ranks BatchNorm's statistics are the
    mean over the ranks there were, and the plan is None, as it is for another policy or network than before.
    """
    told = world.comm.bcast(checkpoint and (checkpoint.iteration, checkpoint.record), root=0)
    if told is None:
        return 0, None
    iteration, about = told
    xp = network.kernels.xp
    arrays = world.comm.bcast(checkpoint.arrays if checkpoint else None, root=0)
    network.arena.parameters[...] = xp.asarray(arrays["parameters"])
    optimizer.velocity[...] = xp.asarray(arrays["velocity"])
    states, same = arrays["state"], about.get("world_size") == world.size
    network.state[...] = xp.asarray(states[world.rank] if same else states.mean(axis=0))
    record.go_on(iteration, *about["epoch_sums"])
    before = about["config"]
    keep = same and all(before.get(name) == getattr(config, name) for name in PLANNED_BY)
    return iteration, _plan_from(about["plan"]) if keep and about.get("plan") else None


def leave_checkpoint(
    world: World,
    config: Config,
    folder: Path | None,
    iteration: int,
    network: Network,
    optimizer: SGD,
    record: Record,
    plan: Plan | None,
    global_batch: int,
) -> None:
    """Write the checkpoint after `iteration` iterations on rank 0. Collective."""
    velocity = optimizer.whole_velocity()
    states = world.comm.gather(to_host(network.state), root=0)
    with world.together():
        if folder is not None and states is not None:
            parameters = to_host(network.arena.parameters)
            arrays = {"parameters": parameters, "velocity": velocity, "state": np.stack(states)}
            about = {
                "config": config.to_dict(),
                "world_size": world.size,
                "global_batch_size": global_batch,
                "layout": network.arena.fingerprint(),
                "epoch_sums": record.epoch_sums(),
                "plan": _plan_to(plan) if plan else None,
            }
            save(folder / "checkpoints", iteration, arrays, about, config.keep_checkpoints)


def _plan_to(plan: Plan) -> dict[str, Any]:
    return {
        "workload": workload_to_dict(plan.workload),
        "network": plan.network,
        "policy": plan.schedule.policy,
        "mode": plan.schedule.mode,
        "buckets": [[bucket.first, bucket.last] for bucket in plan.schedule.buckets],
        "update_s": plan.update_s,
    }


def _plan_from(value: dict[str, Any]) -> Plan:
    workload = workload_from_dict(value["workload"], "checkpoint")
    buckets = tuple(Bucket(first, last) for first, last in value["buckets"])
    schedule = Schedule(value["policy"], buckets, value.get("mode", ALL_REDUCE))
    schedule.check(len(workload.layers))
    cost = table_of(value["network"]) if value["network"] else AffineCost(0.0, 0.0)
    return Plan(workload, value["network"], schedule, predict(workload, schedule, cost), value["update_s"])
