"""Which checkpoint does a run go on from, with which options, and may it? Rank 0 decides, before the first message."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mgwfbp.data import Data, total_iterations
from mgwfbp.errors import UserError
from mgwfbp.files import read_json
from mgwfbp.net import Net
from mgwfbp.optim import Optimizer
from mgwfbp.optim.lr import lr_policy
from mgwfbp.runs.checkpoint import Checkpoint, newest
from mgwfbp.runs.config import WEIGHTS, Config, deciding

# What a run that is resumed does not take from the one before: where it writes.
OWN = ("out", "overwrite", "resume", "change")


NEVER = ("model", "freeze")  # options whose change would be another net


class Change(NamedTuple):
    """An option that is another than before, on purpose, from iteration `after` on."""

    after: int
    option: str
    before: Any
    now: Any


def find_checkpoint(given: Mapping[str, Any]) -> Checkpoint | None:
    """The checkpoint that `given["resume"]` means; None to start from the beginning. Rank 0 calls it.

    Raises UserError if there is none where one was named.
    """
    resume, out = given.get("resume"), given.get("out")
    if resume is None:
        return None
    automatic = resume == "auto"
    if automatic and out is None:
        raise UserError("--resume auto: name the run folder, --out FOLDER")
    where = Path(str(out if automatic else resume)).expanduser()
    found = newest(where)
    if not (automatic or where.exists()):
        raise UserError(f"--resume {where}: there is no such folder")
    if found is None and not automatic:
        raise UserError(f"--resume {where}: there is no checkpoint (FOLDER/checkpoints/iteration-…)")
    if found is not None and not isinstance(found.record.get("config"), dict):
        raise UserError(f"checkpoint {found.path}: it lacks the run's config")
    return found


def options_of_run(given: Mapping[str, Any], found: Checkpoint | None) -> dict[str, Any]:
    """The options `given` on purpose, and all others as they were in the run that the checkpoint `found` is of.

    More epochs that are asked for are not cut off by the iterations that were asked for then; the global batch stays
    what it was, on any number of ranks.
    """
    if found is None:
        return dict(given)
    before = {name: value for name, value in found.record["config"].items() if name not in OWN}
    if "epochs" in given:
        before["iterations"] = None
    elif given.get("iterations"):  # an epoch has one or more of them
        before["epochs"] = max(int(before.get("epochs", 1)), int(given["iterations"]))
    if "global_batch_size" not in given:
        before["global_batch_size"] = None if "batch_size" in given else found.record.get("global_batch_size")
    known = set(Config("").to_dict())
    return {**{name: value for name, value in before.items() if name in known}, **given}


def check_resumed(
    found: Checkpoint, config: Config, global_batch: int, net: Net, data: Data, optimizer: Optimizer
) -> tuple[list[Change], str | None]:
    """(what is changed on purpose, what must be said of the learning rate) where `config` goes on from `found`.

    Raises UserError if it would be another training and `config.change` does not say that this is meant, or if there is
    nothing left to do.
    """
    before, changes, done = found.record["config"], [], found.iteration
    defaults = Config("").to_dict()  # of options that there were not yet when the checkpoint was written
    for name in _differences(before, config):
        was, now = before.get(name, defaults.get(name)), getattr(config, name)
        if not config.change or name in NEVER:
            other = "begin a new run with its --weights" if name in NEVER else "--change if it is meant"
            raise UserError(
                f"checkpoint {found.path} is from a run with {name.replace('_', '-')} {was}, this one has {now}; "
                f"leave the option out, or {other}"
            )
        changes.append(Change(done, name, was, now))
    changes += check_same_training(found, global_batch, net, data, optimizer, change=config.change)
    samples = len(data.train_labels)
    batch = int(found.record.get("global_batch_size", global_batch))
    was = total_iterations(samples, batch, int(before.get("epochs", config.epochs)), before.get("iterations"))
    now = total_iterations(samples, global_batch, config.epochs, config.iterations)
    if done >= now:
        raise UserError(
            f"checkpoint {found.path}: all {now} iterations are done, there is nothing to resume; "
            f"ask for more than {config.epochs} with --epochs"
        )
    if now < was and not config.change:
        raise UserError(
            f"checkpoint {found.path} is from a run of {was} iterations, this one has {now}; more are fine, for fewer "
            "say --change"
        )
    if now == was:
        return changes, None
    changes.append(Change(done, "iterations", was, now))
    then, here = (lr_policy(config.lr_policy)(done, total) * config.lr for total in (was, now))
    if then == here:  # a policy that does not go by the run's length
        return changes, None
    return changes, (
        f"lr-policy {config.lr_policy} goes by the run's length: from here on {now} iterations count instead of {was}, "
        f"and the learning rate is {here:.3g}"
    )


def check_same_training(
    found: Checkpoint, global_batch: int, net: Net, data: Data, optimizer: Optimizer, *, change: bool = False
) -> list[Change]:
    """The data and the global batch, where they are others than before and that is meant (`change`).

    Raises UserError if it is of another net or optimiser, and where it is not meant.
    """
    changes = []
    if found.record.get("layout") != net.arena.fingerprint():
        raise UserError(
            f"checkpoint {found.path} is of another net: its layers have other names or shapes; "
            "to begin with what fits, --weights instead of --resume"
        )
    for key, name, now in (
        ("data", "data", data.fingerprint),
        ("global_batch_size", "global batch size", global_batch),
    ):
        was = found.record.get(key, now)  # older ones do not say
        if was == now:
            continue
        if not change:
            hint = "keep the global batch with --global-batch-size" if name != "data" else "resume with the same files"
            raise UserError(
                f"checkpoint {found.path} has {name} {was}, this run {now}: it would not be the same training; {hint}"
            )
        changes.append(Change(found.iteration, name.replace(" ", "_"), was, now))
    missing = [name for name in optimizer.slots if name not in found.arrays]
    if missing:
        raise UserError(f"checkpoint {found.path} has no {missing[0]}: it was left by another optimizer")
    return changes


def _differences(before: Mapping[str, Any], config: Config) -> list[str]:
    """The options that decide the weights and are others than before."""
    defaults = Config("").to_dict()
    names = ["model", *deciding(WEIGHTS)]
    return [name for name in names if before.get(name, defaults[name]) != getattr(config, name)]


def ended_early(config: Config) -> bool:
    """Whether `--resume auto` finds its own run's folder, that ended before its first checkpoint: nothing is lost."""
    if config.resume != "auto" or config.out is None or (Path(config.out) / "summary.json").exists():
        return False
    try:
        return not _differences(read_json(Path(config.out) / "config.json", "run"), config)
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
