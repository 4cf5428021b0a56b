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

    It is held from here on, and written from `begin` on. A run that is resumed after `resumed` iterations goes on in
    its folder: what was logged of later ones is dropped. Raises UserError if it cannot be made, is being written by
    another run, or holds another run's files and `overwrite` is not set.
    """

    def __init__(self, path: str | None, model: str, overwrite: bool, resumed: int | None = None) -> None:
        self.resumed = resumed if path is not None else None
        self._metrics: TextIO | None = None
        try:
            self.path = _new_folder(model) if path is None else Path(path)
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.path)
        except OSError as error:
            raise UserError(f"run folder {path or 'runs'}: cannot be made ({error.strerror or error})") from None
        self._old = [name for name in (*FILES, "checkpoints") if (self.path / name).exists()]
        if self._old and not overwrite and self.resumed is None:
            self._lock.close()
            raise UserError(
                f"run folder {self.path} holds another run ({self._old[0]}); choose another --out or --overwrite"
            )

    def begin(self, config: dict[str, Any] | None = None) -> None:
        """Write into the folder from here on; what was refused before that has changed nothing in it.

        Another run's files go; of a run that is resumed nothing is cleared, since its checkpoints are what is gone on
        from. `config` is for config.json. Raises UserError.
        """
        try:
            if self.resumed is None:
                for name in self._old:
                    shutil.rmtree(self.path / name) if name == "checkpoints" else (self.path / name).unlink()
            else:
                self._cut(self.resumed)
            self._metrics = open(self.path / "metrics.jsonl", "a", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise UserError(f"run folder {self.path}: cannot be written ({error.strerror or error})") from None
        if config is not None:
            self.write("config.json", config)

    def _cut(self, resumed: int) -> None:
        """Drop what was left after `resumed` iterations: checkpoints, and the lines of the log that belong to them."""
        drop_after(self.path / "checkpoints", resumed)
        metrics, kept = self.path / "metrics.jsonl", []
        metrics.touch()
        for line in metrics.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            try:
                if json.loads(line).get("iteration", 0) > resumed:
                    break
            except (ValueError, AttributeError, TypeError):  # the run ended while it wrote this line
                break
            kept.append(line if line.endswith("\n") else line + "\n")
        write_text(metrics, "".join(kept))
        (self.path / "summary.json").unlink(missing_ok=True)

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write `value` as the file `name`, whole or not at all."""
        write_json(self.path / name, value)

    def log(self, lines: list[dict[str, Any]]) -> None:
        """Append `lines` to metrics.jsonl, now. Raises UserError if they cannot be written."""
        assert self._metrics is not None, "begin() comes first"
        try:
            self._metrics.writelines(json_text(line) + "\n" for line in lines)
            self._metrics.flush()
        except OSError as error:
            raise UserError(f"{self.path / 'metrics.jsonl'}: cannot be written ({error.strerror or error})") from None

    def close(self) -> None:
        """Close metrics.jsonl, and let others have the folder."""
        if self._metrics is not None:
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
