"""Which checkpoint does a run go on from, and may it? Decided by rank 0, before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mgwfbp.errors import UserError
from mgwfbp.files import read_json
from mgwfbp.runs.checkpoint import Checkpoint, newest
from mgwfbp.runs.config import WEIGHTS, Config, deciding


def find_checkpoint(
    config: Config, global_batch: int, iterations: int, fingerprint: str, data: str
) -> Checkpoint | None:
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
    check_same_training(found, global_batch, fingerprint, data)
    if found.iteration >= iterations:
        raise UserError(f"checkpoint {found.path}: all {iterations} iterations are done, there is nothing to resume")
    return found


def check_same_training(found: Checkpoint, global_batch: int, fingerprint: str, data: str) -> None:
    """Raise UserError if it is of another net (its arena's `fingerprint`), of other `data`, or another global batch."""
    if found.record.get("layout") != fingerprint:
        raise UserError(f"checkpoint {found.path} is of another net: its layers have other names or shapes")
    if found.record.get("data", data) != data:  # older ones do not say
        raise UserError(f"checkpoint {found.path} is of other data ({found.record['data']}), this run has {data}")
    if found.record.get("global_batch_size") != global_batch:
        raise UserError(
            f"checkpoint {found.path} has global batch size {found.record.get('global_batch_size')}, this run "
            f"{global_batch}: it would not be the same training; keep the global batch with --global-batch-size"
        )


def _difference(before: dict[str, Any], config: Config) -> str | None:
    """The first option that decides the weights and is another than before."""
    defaults = Config("").to_dict()  # of options that there were not yet when the checkpoint was written
    names = ["model", *deciding(WEIGHTS)]
    return next((name for name in names if before.get(name, defaults[name]) != getattr(config, name)), None)


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
