"""mgwfbp simulate"""

from __future__ import annotations

import csv
import io
import json
import os
from typing import Any

import click

from mgwfbp.cli.options import argument, examples, option, plugin
from mgwfbp.cli.tables import counted, percent, print_table, say
from mgwfbp.errors import UserError
from mgwfbp.files import json_text, write_text
from mgwfbp.simulate.gains import gain_map, parse_sweep
from mgwfbp.simulate.jitter import Jitter
from mgwfbp.simulate.reproduce import measured_speedups
from mgwfbp.simulate.specs import Cluster, cluster_from_spec, scaled, workload_from_spec
from mgwfbp.simulate.sweep import FEWEST, Row, node_counts, plotted_counts, sweep


@click.command(
    "simulate",
    short_help="What a net would do on 4, 8, 16, … nodes.",
    **examples("""
        mgwfbp simulate k80-googlenet --network k80-10gbe --nodes 4,8,16,32,64
        mgwfbp simulate k80-googlenet --network k80-10gbe:64 --gantt iteration.png --schedule wfbp --schedule optimal
        mgwfbp simulate workload.json --network ring:alpha=20us,beta=0.1ns,gamma=0.05ns --nodes 8,64 --compute-scale 4
        mgwfbp simulate k80-googlenet --network k80-10gbe --nodes 8,64 --jitter 0.1 --trials 1000 --plot speedup.png
        mgwfbp simulate k80-googlenet --sweep a=10us:10ms,b=0.1ns:10ns --plot gains.png
    """),
)
@argument("workload", metavar="WORKLOAD")
@plugin
@option("--network", metavar="SPEC", help="As for plan, without its number of nodes where --nodes says it.")
@option(
    "--nodes",
    metavar="N,N,…",
    help="How many nodes, or GPUs or ranks where the network counts those.  [default: what the network names]",
)
@option(
    "--schedule", "schedules", multiple=True, metavar="NAME", help="A policy; repeat it for several.  [default: all]"
)
@option("--compute-scale", default=1.0, help="Let the device be so many times as fast.")
@option("--batch-size", type=click.IntRange(1), help="Let each rank have so many samples; times in proportion.")
@option("--jitter", default=0.0, metavar="SIGMA", help="Noise of every layer's time, as a share of it.")
@option("--trials", default=1000, type=click.IntRange(1), help="Iterations to draw with --jitter.")
@option("--seed", default=0, type=click.IntRange(0), help="Fixes the noise.")
@option("--sweep", metavar="a=LOW:HIGH,b=LOW:HIGH", help="Gain over wfbp for a grid of networks instead of --network.")
@option("--json", "as_json", is_flag=True, help="Print JSON.")
@option("--csv", "as_csv", metavar="FILE.csv", help="Also write the rows as CSV.")
@option(
    "--plot",
    metavar="FILE.png",
    help="Plot speed-up; fewer than five node counts get more beside them (with --sweep: the heat map).",
)
@option("--gantt", metavar="FILE.png", help="Plot one iteration on the largest number of nodes.")
def command(
    workload: str,
    network: str | None,
    nodes: str | None,
    schedules: tuple[str, ...],
    compute_scale: float,
    batch_size: int | None,
    jitter: float,
    trials: int,
    seed: int,
    sweep: str | None,
    as_json: bool,
    as_csv: str | None,
    plot: str | None,
    gantt: str | None,
) -> None:
    """Simulate one iteration of WORKLOAD (a file, or the shipped k80-googlenet) on clusters of several sizes."""
    work = scaled(workload_from_spec(workload), compute_scale=compute_scale, batch_size=batch_size)
    if sweep is not None:
        _gains(work, sweep, schedules, as_json, as_csv, plot)
        return
    if network is None and os.path.isdir(workload):
        network = workload  # a run folder has both
    if network is None:
        raise UserError("simulate needs --network SPEC, for example --network k80-10gbe --nodes 8,64 (or --sweep)")
    cluster = cluster_from_spec(network)
    counts = node_counts(nodes, cluster)
    noise = Jitter.checked(jitter, trials, seed) if jitter else None
    rows = _sweep(work, cluster, counts, schedules, noise)
    dicts = [_named(row, cluster.unit) for row in rows]
    if as_json:
        note = {"note": cluster.note} if cluster.note else {}
        result = {"workload": work.name, "network": network, "unit": cluster.unit, **note, "rows": dicts}
        click.echo(json_text(result, indent=1))
    else:
        _print(work.name, cluster, rows)
    if as_csv:
        _write_csv(as_csv, dicts)
    if plot:
        more = [n for n in plotted_counts(counts, cluster) if n not in counts]
        own = workload == "k80-googlenet" and compute_scale == 1 and batch_size is None
        marks = measured_speedups() if own and network.startswith("k80-10gbe") else []
        _plot(work.name, cluster, rows + _sweep(work, cluster, more, schedules, noise), marks, plot)
    if gantt:
        from mgwfbp.simulate import plots

        names = list(dict.fromkeys(row.schedule for row in rows))
        title = f"{work.name}, one iteration on {network}, {_how_many(max(counts), cluster)}"
        plots.save(plots.gantt_chart(work, cluster.between(max(counts)), names, title), gantt)


_sweep = sweep  # an option of the command has that name


def _named(row: Row, unit: str) -> dict[str, Any]:
    """`row` for JSON and CSV, its number of nodes by the name of what was counted."""
    values = row._asdict()
    return {unit: values.pop("nodes"), **values}


def _how_many(n: int, cluster: Cluster) -> str:
    return counted(n, cluster.unit.removesuffix("s"))


def _plot(workload: str, cluster: Cluster, rows: list[Row], marks: list[tuple[str, int, float]], path: str) -> None:
    from mgwfbp.simulate import plots

    counts = {row.nodes for row in rows}
    marks = [mark for mark in marks if mark[1] in counts]
    title, label = f"{workload} on {cluster.spec}", "measured on the real K80 cluster"
    plots.save(plots.speedup_plot(rows, title, marks, label, cluster.unit, cluster.note), path)
    if len(counts) < FEWEST:
        known = ", ".join(map(str, cluster.known or ()))
        few = f"{len(counts)} counts, not {FEWEST}"
        click.echo(f"plot {path}: {few}: {cluster.spec} is known for {known} only", err=True)


def _print(workload: str, cluster: Cluster, rows: list[Row]) -> None:
    """The rows as a table, and below it what its columns mean and what is to be known of the network."""
    noisy = any(row.low_s is not None for row in rows)
    heads = [cluster.unit, "schedule", "buckets", "iteration", "speed-up", "efficiency"]
    heads = [*heads[:4], "95 % of trials", *heads[4:]] if noisy else [*heads, "exposed", "bound +"]
    table: list[list[str]] = []
    previous = None
    for row in rows:
        if previous not in (None, row.nodes):
            table.append([])
        cells = ["" if previous == row.nodes else str(row.nodes), row.schedule, str(row.buckets)]
        cells.append(f"{row.iteration_s * 1e3:.1f}")
        if row.low_s is not None and row.high_s is not None:
            cells.append(f"{row.low_s * 1e3:.1f} to {row.high_s * 1e3:.1f}")
        cells += [f"{row.speedup:.2f}", f"{row.efficiency:.1%}"]
        if not noisy:
            cells += [f"{row.exposed_s * 1e3:.1f}", percent(row.above_bound)]
        table.append(cells)
        previous = row.nodes
    say(f"{workload} on {cluster.spec}")
    print_table(heads, table)
    if noisy:
        say("times in ms")
    else:
        last = min((row for row in rows if row.nodes == rows[-1].nodes), key=lambda row: row.iteration_s)
        say("times in ms; bound +: how far above what no schedule can undercut")
        within = percent(last.above_bound)
        say(f"{_how_many(last.nodes, cluster)}: {last.schedule} is within {within} of any schedule")
    if cluster.note:
        say(f"{cluster.spec}: {cluster.note}")


def _gains(
    work: Any, spec: str, schedules: tuple[str, ...], as_json: bool, as_csv: str | None, plot: str | None
) -> None:
    a, b = parse_sweep(spec)
    name = schedules[0] if schedules else "optimal"
    gains = gain_map(work, a, b, name)
    rows = [
        {"a_s": x, "b_s_per_byte": y, "gain": g}
        for x, line in zip(a, gains, strict=True)
        for y, g in zip(b, line, strict=True)
    ]
    if as_json:
        click.echo(json.dumps({"workload": work.name, "schedule": name, "rows": rows}, indent=1))
    else:
        best = max(rows, key=lambda row: row["gain"])
        click.echo(
            f"{work.name}: {name} gains {min(row['gain'] for row in rows):.2f}× to {best['gain']:.2f}× over wfbp; "
            f"most at a={best['a_s'] * 1e6:.1f}us,b={best['b_s_per_byte'] * 1e9:.3f}ns"
        )
    if as_csv:
        _write_csv(as_csv, rows)
    if plot:
        from mgwfbp.simulate import plots

        title = f"{work.name}: iteration time of wfbp ÷ {name}"
        plots.save(plots.heat_map(a, b, gains, title, f"gain of {name} over wfbp"), plot)


def _write_csv(path: str, rows: list[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
