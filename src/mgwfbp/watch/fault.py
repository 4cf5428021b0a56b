"""Faults on purpose, for lessons and tests: MGWFBP_FAULT="rank=1,iteration=3,kind=raise".

kind=raise      an exception in the main thread      kind=nan        this rank's images become NaN
kind=exit       sys.exit in the main thread          kind=delay:2s   the iteration begins 2 s late
kind=kill       SIGKILL, as by the kernel when memory runs out
kind=stall      the main thread stops for good
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any, NamedTuple

import numpy as np

from mgwfbp.data import Data, Share
from mgwfbp.errors import UserError
from mgwfbp.fields import assignments, seconds_from_text

WHERE = "MGWFBP_FAULT"
KINDS = ("raise", "exit", "kill", "stall", "nan", "delay")


class Fault(NamedTuple):
    """What happens on `rank` when it begins `iteration` (counted from 1)."""

    rank: int
    iteration: int
    kind: str
    delay_s: float = 0.0

    def strike(self, rank: int, number: int, images: np.ndarray) -> np.ndarray:
        """`images`, unless this is the rank and the iteration (`number` counts from 0): then the fault happens."""
        if rank != self.rank or number + 1 != self.iteration:
            return images
        what = f"fault on purpose ({WHERE}) in iteration {self.iteration}"
        if self.kind == "raise":
            raise RuntimeError(what)
        if self.kind == "exit":
            sys.exit(what)
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "stall":
            threading.Event().wait()
        if self.kind == "nan":
            return images * np.nan
        time.sleep(self.delay_s)
        return images


class FaultyData:
    """`data`, but `fault` strikes when its rank takes the batch of its iteration."""

    def __init__(self, data: Data, fault: Fault, rank: int) -> None:
        self.data, self.fault, self.rank = data, fault, rank
        self._taken: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)

    def train_batch(self, share: Share, seed: int, iteration: int) -> tuple[np.ndarray, np.ndarray]:
        """The batch, as ever."""
        self._taken = iteration
        return self.data.train_batch(share, seed, iteration)

    def normalised(self, images: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
        """The images, if they are of another iteration, or not to train on."""
        number, self._taken = self._taken, None
        images = self.data.normalised(images, dtype)
        return images if number is None else self.fault.strike(self.rank, number, images)


def fault_from_environment(ranks: int) -> Fault | None:
    """The fault that MGWFBP_FAULT describes, if it is set. Raises UserError for what is none on so many `ranks`."""
    text = os.environ.get(WHERE)
    if not text:
        return None
    values = assignments(text, WHERE, ("rank", "iteration", "kind"))
    kind, _, rest = values["kind"].partition(":")
    for key in ("rank", "iteration"):
        if not values[key].isdecimal():
            raise UserError(f"{WHERE}: {key} must be a whole number, found {values[key]!r}")
    if int(values["rank"]) >= ranks:
        raise UserError(f"{WHERE}: there is no rank {values['rank']}, the ranks are 0 to {ranks - 1}")
    if kind not in KINDS or (rest and kind != "delay"):
        raise UserError(f"{WHERE}: kind must be {', '.join(KINDS[:-1])} or delay:2s, found {values['kind']!r}")
    delay_s = seconds_from_text(rest, f"{WHERE}: delay") if kind == "delay" else 0.0
    return Fault(int(values["rank"]), int(values["iteration"]), kind, delay_s)
