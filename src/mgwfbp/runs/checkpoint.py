"""Checkpoints: everything that the next iteration depends on, written whole or not at all, and checked when read.

    checkpoints/iteration-00000120/    arrays.safetensors   parameters, the optimiser's, and the state of each rank
                                       checkpoint.json      iteration, config, plan, and the SHA-256 of the arrays

Random numbers need no saving: each is a function of the seed and of what it is for (docs/architecture.md), and the
place in the data follows from the iteration. A checkpoint is written under a temporary name, flushed to the
disk and renamed, so a name without a dot in front is a whole checkpoint.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from mgwfbp.errors import UserError
from mgwfbp.files import file_mode, read_json, write_json

ARRAYS, RECORD = "arrays.safetensors", "checkpoint.json"
NAME = re.compile(r"iteration-\d{8,}")


class Checkpoint(NamedTuple):
    """What was read: `arrays` are "parameters", the optimiser's (all flat, as the arena), "state" (ranks, values)."""

    path: Path
    iteration: int
    arrays: dict[str, np.ndarray]
    record: dict[str, Any]


def save(folder: Path, iteration: int, arrays: dict[str, np.ndarray], record: dict[str, Any], keep: int) -> Path:
    """Write the checkpoint after `iteration` iterations below `folder`, then delete all but the newest `keep`.

    Raises UserError if it cannot be written; older checkpoints are then untouched.
    """
    place = folder / f"iteration-{iteration:08d}"
    temporary = folder / f".{place.name}"
    try:
        for old in folder.glob(".iteration-*"):  # of a process that was killed while it wrote
            shutil.rmtree(old, ignore_errors=True)
        temporary.mkdir(parents=True)
        save_file(arrays, temporary / ARRAYS)
        os.chmod(temporary / ARRAYS, file_mode())  # safetensors makes it private
        _flush(temporary / ARRAYS)
        write_json(temporary / RECORD, {"iteration": iteration, "sha256": _sha256(temporary / ARRAYS), **record})
        _flush(temporary)
        if place.exists():  # of a run that ended after it, and was resumed from before it
            shutil.rmtree(place)
        temporary.rename(place)
        _flush(folder)
        drop_after(folder, iteration)  # of a trajectory that was given up
        for old in _names(folder)[keep:]:
            shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError, UserError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"checkpoint {place}: cannot be written ({reason})") from None
    return place


def drop_after(folder: Path, iteration: int) -> None:
    """Delete the checkpoints in `folder` that were left after more than `iteration` iterations."""
    for old in _names(folder):
        if _number(old) > iteration:
            shutil.rmtree(old, ignore_errors=True)


def newest(where: Path) -> Checkpoint | None:
    """The newest whole checkpoint of the run folder `where`, or the one that `where` is; None if there is none.

    A damaged one is said on stderr and the one before it taken. Raises UserError if all that there are are damaged.
    """
    found = [where] if (where / RECORD).exists() else _names(where / "checkpoints")
    for place in found:
        try:
            return _read(place)
        except UserError as error:  # noqa: PERF203
            before = "; trying the one before" if place != found[-1] else ""
            sys.stderr.write(f"mgwfbp: {error}{before}\n")
    if found:
        raise UserError(f"{where}: none of its {len(found)} checkpoints can be read")
    return None


def _read(place: Path) -> Checkpoint:
    record = read_json(place / RECORD, "checkpoint")
    try:
        if _sha256(place / ARRAYS) != record.get("sha256"):
            raise UserError(f"checkpoint {place}: {ARRAYS} is damaged (its SHA-256 is another)")
        arrays = load_file(place / ARRAYS)
    except UserError:
        raise
    except Exception as error:  # safetensors has an exception of its own for each way a file can be wrong
        raise UserError(f"checkpoint {place}: {ARRAYS} cannot be read ({error})") from None
    iteration = record.get("iteration")
    if not isinstance(iteration, int) or not {"parameters", "state"} <= set(arrays):
        raise UserError(f"checkpoint {place}: it lacks its iteration or some of its arrays")
    return Checkpoint(place, iteration, arrays, record)


def _names(folder: Path) -> list[Path]:
    """The checkpoints in `folder`, the newest first. What has another name is not ours: somebody's copy, say."""
    try:
        return sorted((entry for entry in folder.iterdir() if NAME.fullmatch(entry.name)), key=_number, reverse=True)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror or error})") from None


def _number(place: Path) -> int:
    return int(place.name.rpartition("-")[2])


def _sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        result = hashlib.sha256()
        while block := stream.read(1 << 20):
            result.update(block)
    return result.hexdigest()


def _flush(path: Path) -> None:
    """Force a file, or the names in a folder, onto the disk; some file systems cannot do that with a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
