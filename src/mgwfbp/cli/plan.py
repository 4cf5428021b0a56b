"""mgwfbp plan"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

from mgwfbp.cli.options import argument, examples, option, plugin
from mgwfbp.cli.tables import counted, percent, print_table, say
from mgwfbp.errors import UserError
from mgwfbp.files import json_text
from mgwfbp.schedule import AffineCost, TableCost, Workload, compared, lower_bound_s, make_schedule, predict
from mgwfbp.simulate.specs import cost_from_spec, workload_from_spec


@click.command(
    "plan",
    short_help="Compare schedules for a workload on a network, on paper.",
    **examples("""
        mgwfbp plan runs/lenet
        mgwfbp plan runs/lenet --network a=633.5us,b=3.92ns --schedule wfbp --schedule optimal
        mgwfbp plan workload.json --network network.json
        mgwfbp plan k80-googlenet --network k80-10gbe:64 --json
    """),
)
@argument("workload", metavar="WORKLOAD")
@plugin
@option(
    "--network",
    metavar="SPEC",
    help="NETWORK.json, NETWORKS.json:N, a run folder, a=…,b=…, ring:alpha=…,beta=…,gamma=…,nodes=N or k80-10gbe:N.  "
    "[default: a run folder's own]",
)
@option(
    "--schedule",
    "schedules",
    multiple=True,
    metavar="NAME",
    help="A policy; repeat it for several.  [default: all]",
)
@option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(workload: str, network: str | None, schedules: tuple[str, ...], as_json: bool) -> None:
    """Predict one iteration of WORKLOAD on a network under each schedule.

    WORKLOAD is a file, a run folder, or the shipped k80-googlenet.
    """
    if network is None:
        if not os.path.isdir(workload):
            raise UserError("plan needs --network SPEC, as --network k80-10gbe:64; only a run folder has its own")
        network = workload
    work, cost = workload_from_spec(workload), cost_from_spec(network)
    result = comparison(work, network, cost, schedules)
    if as_json:
        click.echo(json_text(result, indent=1))
    else:
        _print(work, result)


def comparison(work: Workload, network: str, cost: AffineCost | TableCost, names: Sequence[str]) -> dict[str, Any]:
    """The object that --json prints: a row for each policy of `names`, or of all there are. Raises UserError.

    Times are in seconds; `comm_end_s` counts from the start of backward. `bound_s` is the iteration time that no
    schedule can undercut, `above_bound` the relative distance from it. `bucket_layers` are each bucket's first and last
    layer, counted from 0 in gradient-ready order, in the order in which they are sent.
    """
    rows, bound = [], lower_bound_s(work, cost)
    for name in names or compared():
        schedule = make_schedule(name, work, cost)
        prediction = predict(work, schedule, cost)
        rows.append(
            {
                "schedule": name,
                "buckets": len(schedule.buckets),
                "bucket_layers": [[bucket.first, bucket.last] for bucket in schedule.buckets],
                "iteration_s": prediction.iteration_s,
                "comm_end_s": prediction.comm_end_s,
                "exposed_s": prediction.exposed_s,
                "overlap": prediction.overlap,
                "behind_backward_s": prediction.behind_backward_s,
                "behind_forward_s": prediction.behind_forward_s,
                "bound_s": bound,
                "above_bound": prediction.iteration_s / bound - 1 if bound else 0.0,
            }
        )
    line = cost.affine if isinstance(cost, TableCost) else cost
    return {"workload": work.name, "network": network, "a_s": line.a, "b_s_per_byte": line.b, "rows": rows}


def _print(work: Workload, result: dict[str, Any]) -> None:
    say(
        f"{work.name}: {counted(len(work.layers), 'layer')}, {work.nbytes / 1e6:.3f} MB of gradients, "
        f"forward {work.forward_s * 1e3:.3f} ms, backward {work.backward_s * 1e3:.3f} ms"
    )
    a, b = result["a_s"], result["b_s_per_byte"]
    say(f"{result['network']}: about {a * 1e6:.1f} µs a message + {b * 1e9:.4f} ns a byte")
    slowest = max(row["iteration_s"] for row in result["rows"])
    rows = [
        (
            row["schedule"],
            str(row["buckets"]),
            f"{row['iteration_s'] * 1e3:.3f}",
            f"{row['exposed_s'] * 1e3:.3f}",
            f"{row['overlap']:.1%}",
            f"{slowest / row['iteration_s']:.2f}×" if row["iteration_s"] else "",
            percent(row["above_bound"]),
        )
        for row in result["rows"]
    ]
    print_table(("schedule", "buckets", "iteration ms", "exposed ms", "overlap", "speed-up", "bound +"), rows)
    best = min(result["rows"], key=lambda row: row["iteration_s"])
    within = percent(best["above_bound"])
    say(f"speed-up: against the slowest row; {best['schedule']} is within {within} of any schedule")
