"""Workloads by name or file, and scaled: another batch size, a faster device."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from mgwfbp.errors import UserError, unknown_name
from mgwfbp.files import read_json
from mgwfbp.schedule import Workload
from mgwfbp.schedule.workload import workload_from_dict
from mgwfbp.simulate.figures import read_shipped, shipped


def workload_from_spec(spec: str) -> Workload:
    """The workload in the file `spec`, or the shipped one of that name (`k80-googlenet`). Raises UserError."""
    if spec in shipped("workload"):
        return workload_from_dict(read_shipped("workload", spec), f"workload {spec}")
    if "/" in spec or "." in spec or Path(spec).exists():
        return workload_from_dict(read_json(spec, "workload file"), f"workload file {spec}")
    raise unknown_name("workload", spec, shipped("workload"))


def scaled(workload: Workload, *, compute_scale: float = 1.0, batch_size: int | None = None) -> Workload:
    """`workload` on a device `compute_scale` times as fast, with `batch_size` samples a rank.

    Times are taken to be proportional to the samples, which holds as long as the device stays busy; sizes stay.
    Raises UserError unless the scale is finite and above 0.
    """
    if not math.isfinite(compute_scale) or compute_scale <= 0:
        raise UserError(f"--compute-scale must be a finite number above 0, got {compute_scale}")
    factor = 1.0 / compute_scale
    if batch_size is not None:
        if workload.batch_size < 1:
            raise UserError(f"workload {workload.name} has no batch size, so --batch-size cannot scale it")
        factor *= batch_size / workload.batch_size
    layers = tuple(replace(layer, backward_s=layer.backward_s * factor) for layer in workload.layers)
    return replace(
        workload,
        batch_size=workload.batch_size if batch_size is None else batch_size,
        forward_s=workload.forward_s * factor,
        layers=layers,
    )
