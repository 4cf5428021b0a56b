"""The run folder: what a run leaves behind. Rank 0 alone writes it."""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, TextIO

from mgwfbp.errors import UserError
from mgwfbp.files import json_text, write_json, write_text
from mgwfbp.runs.checkpoint import drop_after
from mgwfbp.schedule import Plan, workload_to_dict

# Whoever has one of these is a run folder; `--overwrite` removes these and nothing else.
FILES = (
    "config.json",
    "metrics.jsonl",
    "schedule.json",
    "workload.json",
    "network.json",
    "timeline.json",
    "summary.json",
)


class RunFolder:
    """The folder `path` (a new one, runs/MODEL-DATE-TIME, by default).

    A run that is resumed after `resumed` iterations goes on in its folder: what was logged of later ones is dropped.
    Raises UserError if it cannot be made, is being written by another run, or holds another run's files and `overwrite`
    is not set.
    """

    def __init__(self, path: str | None, model: str, overwrite: bool, resumed: int | None = None) -> None:
        try:
            if path is not None and resumed is not None:  # never cleared: its checkpoints are what is gone on from
                self._go_on(Path(path), resumed)
                return
            self.path = _new_folder(model) if path is None else Path(path)
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.path)
            old = [name for name in (*FILES, "checkpoints") if (self.path / name).exists()]
            if old and not overwrite:
                raise UserError(
                    f"run folder {self.path} holds another run ({old[0]}); choose another --out or --overwrite"
                )
            for name in old:
                shutil.rmtree(self.path / name) if name == "checkpoints" else (self.path / name).unlink()
            self._metrics: TextIO = open(self.path / "metrics.jsonl", "w", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise UserError(f"run folder {path or 'runs'}: cannot be made ({error.strerror or error})") from None

    def _go_on(self, path: Path, resumed: int) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(path)
        drop_after(path / "checkpoints", resumed)  # with the lines that are cut off below
        (path / "metrics.jsonl").touch()
        kept = []
        for line in (path / "metrics.jsonl").read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            try:
                if json.loads(line).get("iteration", 0) > resumed:
                    break
            except (ValueError, AttributeError, TypeError):  # the run ended while it wrote this line
                break
            kept.append(line if line.endswith("\n") else line + "\n")
        write_text(path / "metrics.jsonl", "".join(kept))
        (path / "summary.json").unlink(missing_ok=True)
        self._metrics = open(path / "metrics.jsonl", "a", encoding="utf-8")  # noqa: SIM115

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write `value` as the file `name`, whole or not at all."""
        write_json(self.path / name, value)

    def log(self, lines: list[dict[str, Any]]) -> None:
        """Append `lines` to metrics.jsonl, now. Raises UserError if they cannot be written."""
        try:
            self._metrics.writelines(json_text(line) + "\n" for line in lines)
            self._metrics.flush()
        except OSError as error:
            raise UserError(f"{self.path / 'metrics.jsonl'}: cannot be written ({error.strerror or error})") from None

    def close(self) -> None:
        """Close metrics.jsonl, and let others have the folder."""
        self._metrics.close()
        self._lock.close()

    def finish(self, plan: Plan, summary: dict[str, Any]) -> None:
        """Write what is known at the end; summary.json last, so that its presence means that the run is complete."""
        self.log([])
        self.close()
        self.planned(plan)
        self.write("summary.json", summary)

    def planned(self, plan: Plan) -> None:
        """Write what is followed from here on: workload, network and schedule."""
        self.write("workload.json", workload_to_dict(plan.workload))
        if plan.network:
            self.write("network.json", plan.network.to_dict())
        self.write("schedule.json", plan.report())


def _locked(path: Path) -> TextIO:
    """A file in the folder that this process holds until it is closed, or the process ends in whatever way.

    Raises UserError if another process holds it. A file system without locks cannot tell.
    """
    lock = open(path / ".lock", "a", encoding="utf-8")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise UserError(f"run folder {path}: another run is writing into it; choose another --out") from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
    return lock


def _new_folder(model: str) -> Path:
    """runs/MODEL-DATE-TIME, made now; with a number behind it if another run began in the same second."""
    name = f"{model}-{datetime.now():%Y%m%d-%H%M%S}"
    for number in count(1):
        folder = Path("runs", name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError("count() does not end")
