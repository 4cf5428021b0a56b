"""mgwfbp reproduce"""

from __future__ import annotations

from pathlib import Path

import click

from mgwfbp.cli.options import examples, option
from mgwfbp.cli.tables import say
from mgwfbp.errors import UserError
from mgwfbp.files import write_text
from mgwfbp.simulate import plots
from mgwfbp.simulate.report import tally
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

    What the paper printed, what its authors measured, what their formulas give and what other programs computed stand
    apart. Exits with 1 if a number that should match does not.
    """
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"folder {folder}: cannot be made ({error.strerror or error})") from None
    reports = reproduce()
    failures = [failure for report in reports for failure in report.failures()]
    counts = tally(reports)
    parts = ["# MG-WFBP reproduced", f"Written by `mgwfbp reproduce`. Numbers: {counts}.", *failures]
    parts += ["![speed-up against nodes](speedup.png)", "![one iteration](iteration.png)"]
    write_text(folder / "report.md", "\n\n".join([*parts, *(report.markdown() for report in reports)]))
    say(f"{folder / 'report.md'}: {counts}")
    for failure in failures:
        click.echo(f"differs: {failure}", err=True)
    _plot(folder)
    return int(bool(failures))


def _plot(folder: Path) -> None:
    workload, cluster = workload_from_spec("k80-googlenet"), cluster_from_spec("k80-10gbe")
    title = "GoogLeNet, K80 trace, simulated 10 GbE ring"
    marks, chart_title = "measured on the real cluster", "GoogLeNet, one iteration on 64 nodes"
    lines = plots.speedup_plot(googlenet_sweep(), title, measured_speedups(), marks, cluster.unit)
    plots.save(lines, str(folder / "speedup.png"))
    chart = plots.gantt_chart(workload, cluster.cost(64), (*METHODS, "optimal", "pipelined"), chart_title)
    plots.save(chart, str(folder / "iteration.png"))
