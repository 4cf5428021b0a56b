"""How long does a training step take, and beside it PyTorch's? Processes that step in turn, round by round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from statistics import median
from typing import Any

from mgwfbp.errors import UserError
from mgwfbp.models import build


class Worker:
    """A process of `step_worker` for one side. Raises UserError if it ends before it is ready."""

    def __init__(self, side: str, model: str, batch: int, threads: int) -> None:
        self.side = side
        command = [sys.executable, "-m", "mgwfbp.bench.step_worker", side, model, str(batch), str(threads)]
        # Set before the libraries are loaded, too: some read it then, and only then.
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._read()

    def step(self) -> dict[str, float]:
        """Take one step; its times in seconds."""
        assert self.process.stdin is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        return self._read()

    def end(self) -> int:
        """End the process; its peak resident memory in bytes."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        peak = int(self._read()["peak_nbytes"])
        self.process.wait()
        return peak

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise UserError(f"bench step: the process for {self.side} ended by itself; what it printed stands above")
        return json.loads(line)


def bench_step(
    model: str, batch: int, threads: int, rounds: int = 9, sides: Sequence[str] = ("fast", "numpy")
) -> dict[str, Any]:
    """Medians over `rounds` rounds of a step of `model` at `batch` on each of `sides`, and ratios to torch's better.

    The sides (fast, numpy, torch-nchw, torch-nhwc) are processes of their own, so that each has its own memory, threads
    and settings; they step one after the other, so that a noisy machine slows all alike. A ratio is the median over the
    rounds of (this side's time / the faster torch layout's time in that round). Raises UserError.
    """
    build(model)
    if any(side.startswith("torch") for side in sides) and find_spec("torch") is None:
        raise UserError("bench step --against torch: PyTorch is not installed; pip install torch")
    workers: list[Worker] = []
    try:
        workers += [Worker(side, model, batch, threads) for side in sides]
        times: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(rounds):
            for worker in workers:
                times[worker.side].append(worker.step())
        peaks = {worker.side: worker.end() for worker in workers}
    finally:
        for worker in workers:
            worker.process.kill()
    totals = {side: [sum(step.values()) for step in steps] for side, steps in times.items()}
    torchs = [side for side in sides if side.startswith("torch")]
    better = min(torchs, key=lambda side: median(totals[side]), default=None)
    rows = []
    for side in sides:
        row: dict[str, Any] = {"side": side}
        row.update({key: median(step[key] for step in times[side]) for key in ("forward_s", "backward_s", "update_s")})
        row.update(step_s=median(totals[side]), images_per_s=batch / median(totals[side]), peak_nbytes=peaks[side])
        if better is not None:
            ratios = sorted(mine / theirs for mine, theirs in zip(totals[side], totals[better], strict=True))
            quarter = len(ratios) // 4
            row.update(ratio=median(ratios), ratio_low=ratios[quarter], ratio_high=ratios[-1 - quarter])
            row["peak_ratio"] = peaks[side] / peaks[better]
        rows.append(row)
    return {"model": model, "batch_size": batch, "threads": threads, "rounds": rounds, "against": better, "rows": rows}
