"""Where does merging pay? The gain of a schedule over WFBP for a grid of networks."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from mgwfbp.errors import UserError
from mgwfbp.fields import assignments, seconds_from_text
from mgwfbp.schedule import AffineCost, Workload, make_schedule, predict

STEPS = 25


def parse_sweep(text: str) -> tuple[list[float], list[float]]:
    """The a (s) and b (s/byte) of `a=LOW:HIGH[:STEPS],b=LOW:HIGH[:STEPS]`, on a log scale. Raises UserError."""
    where = f"--sweep {text!r}"
    values = assignments(text, where, ("a", "b"))
    axes = []
    for key in ("a", "b"):
        low, colon, rest = values[key].partition(":")
        high, _, steps = rest.partition(":")
        ends = [seconds_from_text(part, f"{where}: {key}") for part in (low, high)] if colon else [0.0, 0.0]
        if not 0 < ends[0] < ends[1] or not re.fullmatch(r"\d{0,4}", steps) or not 2 <= int(steps or STEPS) <= 400:
            raise UserError(f"{where}: {key} needs LOW:HIGH or LOW:HIGH:STEPS with 0 < LOW < HIGH, 2 to 400 steps")
        axes.append(np.geomspace(ends[0], ends[1], int(steps or STEPS)).tolist())
    return axes[0], axes[1]


def gain_map(workload: Workload, a: Sequence[float], b: Sequence[float], name: str = "optimal") -> list[list[float]]:
    """result[i][j]: WFBP's iteration time over that of the schedule `name`, at a[i] seconds and b[j] seconds/byte."""
    return [[_gain(workload, AffineCost(x, y), name) for y in b] for x in a]


def _gain(workload: Workload, cost: AffineCost, name: str) -> float:
    wfbp, other = (predict(workload, make_schedule(policy, workload, cost), cost) for policy in ("wfbp", name))
    return wfbp.iteration_s / other.iteration_s if other.iteration_s else 1.0
