"""Several schedules for one workload on one network, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgwfbp.schedule import AffineCost, TableCost, Workload, compared, lower_bound_s, make_schedule, predict


def compare_schedules(workload: Workload, cost: AffineCost | TableCost, names: Sequence[str] = ()) -> dict[str, Any]:
    """The object that `mgwfbp plan --json` prints: a prediction for each of `names`, or for every policy there is.

    Times in seconds; `comm_end_s` counts from the start of backward. `bound_s` is the iteration time that no schedule
    can undercut, `above_bound` the relative distance from it. Raises UserError for an unknown name.
    """
    rows, bound = [], lower_bound_s(workload, cost)
    for name in names or compared():
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
                "behind_backward_s": prediction.behind_backward_s,
                "behind_forward_s": prediction.behind_forward_s,
                "above_bound": prediction.iteration_s / bound - 1 if bound else 0.0,
            }
        )
    line = cost.affine if isinstance(cost, TableCost) else cost
    network = {"a_s": line.a, "b_s_per_byte": line.b}
    return {"workload": workload.name, "network": network, "bound_s": bound, "schedules": rows}
