"""Several schedules for one workload on one network, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgwfbp.schedule import POLICIES, AffineCost, TableCost, Workload, make_schedule, predict

FIXED_SIZE = "bucket:25MiB"  # PyTorch DDP's default


def compare_schedules(workload: Workload, cost: AffineCost | TableCost, names: Sequence[str] = ()) -> dict[str, Any]:
    """The object that `mgwfbp plan --json` prints: a prediction for each of `names`, or for every policy there is.

    Times in seconds; `comm_end_s` counts from the start of backward. Raises UserError for an unknown name.
    """
    rows = []
    for name in names or [*POLICIES, FIXED_SIZE]:
        schedule = make_schedule(name, workload, cost)
        prediction = predict(workload, schedule, cost)
        rows.append(
            {
                "name": name,
                "buckets": [[bucket.first, bucket.last] for bucket in schedule.buckets],
                "iteration_s": prediction.iteration_s,
                "comm_end_s": prediction.comm_end_s,
                "exposed_s": prediction.exposed_s,
                "overlap": prediction.overlap,
            }
        )
    line = cost.affine if isinstance(cost, TableCost) else cost
    return {"workload": workload.name, "network": {"a_s": line.a, "b_s_per_byte": line.b}, "schedules": rows}
