"""mgwfbp plan"""

from __future__ import annotations

from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mgwfbp.cli.options import examples, option, plugin
from mgwfbp.files import json_text
from mgwfbp.schedule import Workload
from mgwfbp.simulate.comparison import compare_schedules
from mgwfbp.simulate.specs import cost_from_spec, workload_from_spec


@click.command(
    "plan",
    short_help="Compare schedules for a workload on a network, on paper.",
    **examples("""
        mgwfbp plan runs/lenet/workload.json --network runs/lenet/network.json
        mgwfbp plan workload.json --network a=633.5us,b=3.92ns --schedule wfbp --schedule optimal
        mgwfbp plan k80-googlenet --network k80-10gbe:64 --json
    """),
)
@click.argument("workload", metavar="WORKLOAD")
@plugin
@option(
    "--network",
    required=True,
    metavar="SPEC",
    help="NETWORK.json, a=…,b=…, ring:alpha=…,beta=…,gamma=…,nodes=N or k80-10gbe:N.",
)
@option(
    "--schedule",
    "schedules",
    multiple=True,
    metavar="NAME",
    help="A policy; repeat it for several.  [default: all]",
)
@option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(workload: str, network: str, schedules: tuple[str, ...], as_json: bool) -> None:
    """Predict one iteration of WORKLOAD (a file, or the shipped k80-googlenet) on a network under each schedule."""
    cost = cost_from_spec(network)
    work = workload_from_spec(workload)
    result = compare_schedules(work, cost, schedules)
    if as_json:
        click.echo(json_text(result, indent=1))
    else:
        _print(work, network, result)


def _print(workload: Workload, network: str, result: dict[str, Any]) -> None:
    console = Console(highlight=False)
    a, b = result["network"]["a_s"], result["network"]["b_s_per_byte"]
    console.print(
        f"{workload.name}: {len(workload.layers)} layers, {workload.nbytes / 1e6:.3f} MB of gradients, "
        f"forward {workload.forward_s * 1e3:.3f} ms, backward {workload.backward_s * 1e3:.3f} ms",
        f"{network}: about {a * 1e6:.1f} µs a message + {b * 1e9:.4f} ns a byte",
        sep="\n",
        markup=False,
        soft_wrap=True,
    )
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("schedule", no_wrap=True)
    for heading in ("buckets", "iteration ms", "exposed ms", "overlap", "speed-up", "bound +"):
        table.add_column(heading, justify="right")
    slowest = max(row["iteration_s"] for row in result["schedules"])
    for row in result["schedules"]:
        table.add_row(
            row["name"],
            str(len(row["buckets"])),
            f"{row['iteration_s'] * 1e3:.3f}",
            f"{row['exposed_s'] * 1e3:.3f}",
            f"{row['overlap']:.1%}",
            f"{slowest / row['iteration_s']:.2f}×" if row["iteration_s"] else "",
            f"{row['above_bound']:.1%}",
        )
    console.print(table)
    best = min(result["schedules"], key=lambda row: row["iteration_s"])
    console.print(
        f"speed-up: against the slowest row; {best['name']} is within {best['above_bound']:.1%} of any schedule",
        markup=False,
        soft_wrap=True,
    )
