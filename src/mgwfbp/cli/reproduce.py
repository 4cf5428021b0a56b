"""mgwfbp reproduce"""

from __future__ import annotations

from pathlib import Path

import click

from mgwfbp.cli.options import examples, option
from mgwfbp.errors import UserError
from mgwfbp.files import write_text
from mgwfbp.simulate import plots
from mgwfbp.simulate.reproduce import METHODS, googlenet_sweep, measured_speedups, reproduce
from mgwfbp.simulate.specs import cluster_from_spec, workload_from_spec


@click.command(
    "reproduce",
    short_help="The paper's tables and figures beside ours.",
    **examples("mgwfbp reproduce --out reproduced"),
)
@option("--out", required=True, metavar="FOLDER", help="Where report.md and the plots go.")
def command(out: str) -> int:
    """Write the paper's tables and figures beside ours to FOLDER/report.md, with plots.

    Exits with 1 if a number that should match does not.
    """
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"folder {folder}: cannot be made ({error.strerror or error})") from None
    workload, cluster = workload_from_spec("k80-googlenet"), cluster_from_spec("k80-10gbe")
    title = "GoogLeNet, K80 trace, simulated 10 GbE ring"
    marks, chart_title = "measured on the real cluster", "GoogLeNet, one iteration on 64 nodes"
    plots.save(plots.speedup_plot(googlenet_sweep(), title, measured_speedups(), marks), str(folder / "speedup.png"))
    chart = plots.gantt_chart(workload, cluster.cost(64), (*METHODS, "optimal", "pipelined"), chart_title)
    plots.save(chart, str(folder / "iteration.png"))
    reports = reproduce()
    failures = [failure for report in reports for failure in report.failures()]
    checked = sum(
        paper is not None for report in reports if report.tolerance is not None for _, paper, _ in report.lines
    )
    verdict = f"{checked - len(failures)} of {checked} numbers that should match do."
    parts = ["# MG-WFBP reproduced", f"Written by `mgwfbp reproduce`. {verdict}", *failures]
    parts += ["![speed-up against nodes](speedup.png)", "![one iteration](iteration.png)"]
    write_text(folder / "report.md", "\n\n".join([*parts, *(report.markdown() for report in reports)]))
    click.echo(f"{folder / 'report.md'}: {verdict}")
    for failure in failures:
        click.echo(f"differs: {failure}", err=True)
    return int(bool(failures))
