"""Plots: speed-up against nodes, one iteration as a Gantt chart, gains as a heat map. Needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import Any

from mgwfbp.errors import UserError
from mgwfbp.schedule import Cost, Workload, make_schedule, predict
from mgwfbp.simulate.sweep import Row

# Okabe and Ito's palette: told apart by all kinds of colour vision. Markers repeat the distinction in grey print.
STYLES = {
    "wfbp": ("#E69F00", "s"),
    "single": ("#56B4E9", "^"),
    "mgwfbp": ("#CC79A7", "D"),
    "optimal": ("#0072B2", "o"),
    "pipelined": ("#009E73", "v"),
    "sharded": ("#D55E00", "P"),
}
OTHERS = [("#000000", "X"), ("#7F7F7F", "*"), ("#999933", "h")]
FORWARD, BACKWARD = "#BBBBBB", "#DDDDDD"


def style_of(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each schedule, always the same for the known ones."""
    others = iter(OTHERS * len(names))
    return {name: STYLES.get(name) or next(others) for name in names}


def _figure(width: float, height: float) -> Any:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("plots need matplotlib: pip install matplotlib") from None
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def save(figure: Any, path: str) -> None:
    """Write `figure` to `path`; its ending says the format. Raises UserError if it cannot be written."""
    ending = Path(path).suffix.lstrip(".").lower()
    if ending not in figure.canvas.get_supported_filetypes():
        raise UserError(
            f"plot {path}: no format is called {ending or 'nothing'!r}; end the name with .png, .pdf or .svg"
        )
    try:
        figure.savefig(path)
    except OSError as error:
        raise UserError(f"plot {path}: cannot be written ({error.strerror or error})") from None


def speedup_plot(
    rows: Sequence[Row],
    title: str,
    marks: Sequence[tuple[str, int, float]] = (),
    marks_label: str = "measured",
    unit: str = "nodes",
    note: str = "",
) -> Any:
    """Speed-up against nodes, a line a schedule; `marks` are published points (schedule, nodes, speed-up).

    The bound is the speed-up that no schedule can pass on that network. `unit` is what the node counts count, `note`
    a line below the axes; both are the network's (specs.Cluster). Raises UserError where matplotlib is missing.
    """
    figure = _figure(6.4, 4.2)
    axes = figure.subplots()
    rows = sorted(rows, key=lambda row: row.nodes)
    nodes = sorted({row.nodes for row in rows})
    names = list(dict.fromkeys(row.schedule for row in rows))
    axes.plot(nodes, nodes, color="#444444", linestyle=":", linewidth=1, label="ideal: n")
    if all(row.low_s is None for row in rows):
        bound = {row.nodes: row.speedup * row.iteration_s / row.bound_s for row in rows if row.bound_s}
        axes.plot(
            list(bound),
            list(bound.values()),
            color="#444444",
            linestyle="--",
            linewidth=1,
            label="bound of any schedule",
            zorder=4,  # above the schedules that reach it
        )
    for name, (colour, marker) in style_of(names).items():
        mine = [row for row in rows if row.schedule == name]
        x, y = [row.nodes for row in mine], [row.speedup for row in mine]
        axes.plot(x, y, color=colour, marker=marker, markersize=5, linewidth=1.6, label=name)
        if all(row.low_s and row.high_s for row in mine):
            low = [row.speedup * row.iteration_s / (row.high_s or 1) for row in mine]
            high = [row.speedup * row.iteration_s / (row.low_s or 1) for row in mine]
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        published = [(n, value) for schedule, n, value in marks if schedule == name]
        if published:
            axes.scatter(
                *zip(*published, strict=True), s=60, facecolors="none", edgecolors=colour, marker=marker, zorder=5
            )
    if marks:
        axes.scatter([], [], s=60, facecolors="none", edgecolors="#444444", marker="o", label=marks_label)
    axes.set(xlabel=unit, ylabel=f"speed-up over one {unit.removesuffix('s')} (images/s ratio)", title=title)
    if note:
        figure.supxlabel(fill(note, 130), fontsize=7)
    largest = max(nodes)
    # Beside 64 the labels of 1 and 2 would read 12: from the right, those that would touch the last one are left out.
    labels, left = {}, largest * 2.0
    for n in reversed(nodes):
        labels[n] = str(n) if left - n > 0.03 * largest else ""
        left = n if labels[n] else left
    axes.set_xticks(nodes, [labels[n] for n in nodes])
    axes.set(xlim=(0, 1.03 * largest), ylim=(0, 1.03 * largest))
    axes.grid(True, which="major", color="#EEEEEE")
    axes.legend(frameon=False, fontsize=8)
    return figure


def gantt_chart(workload: Workload, cost: Cost, names: Sequence[str], title: str) -> Any:
    """From backward to the end of the next forward under each schedule of `names`: compute above, messages below."""
    figure = _figure(8.0, 0.8 + 0.75 * len(names))
    axes = figure.subplots()
    edges, end = [ready * 1e3 for ready in [0.0, *workload.ready_s()]], 0.0
    for place, (name, (colour, _)) in enumerate(style_of(names).items()):
        prediction = predict(workload, make_schedule(name, workload, cost), cost)
        top = -place * 2.6
        forward = [(start * 1e3, (stop - start) * 1e3) for start, stop in prediction.forward]
        backward = [(a, b - a) for a, b in pairwise(edges)]
        # Thin white edges tell messages apart, but would hide hundreds of layers: those have grey ones.
        axes.broken_barh(forward, (top, 0.9), facecolors=FORWARD, edgecolors="#999999", linewidth=0.2)
        axes.broken_barh(backward, (top, 0.9), facecolors=BACKWARD, edgecolors="#AAAAAA", linewidth=0.2)
        spans = [(m.start_s * 1e3, (m.end_s - m.start_s) * 1e3) for m in prediction.messages]
        axes.broken_barh(spans, (top - 1, 0.9), facecolors=colour, edgecolors="white", linewidth=0.4)
        finish = prediction.iteration_s * 1e3
        end = max(end, finish)
        buckets = len(prediction.messages)
        axes.text(
            finish, top - 0.05, f"  {finish:.1f} ms, {buckets} message{'s' * (buckets > 1)}", va="center", fontsize=8
        )
    axes.set_yticks([-place * 2.6 - 0.05 for place in range(len(names))], names)
    axes.set(xlabel="time since the start of backward (ms)", title=title, xlim=(0, end * 1.22))
    axes.bar(0, 0, color=BACKWARD, edgecolor="#AAAAAA", linewidth=0.4, label="backward, by layer")
    axes.bar(0, 0, color=FORWARD, edgecolor="#999999", linewidth=0.4, label="the next forward, by layer")
    axes.bar(0, 0, color=STYLES["optimal"][0], label="messages (schedule's colour)")
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def heat_map(a: Sequence[float], b: Sequence[float], gains: Sequence[Sequence[float]], title: str, label: str) -> Any:
    """`gains[i][j]` at start-up time a[i] (s) and b[j] (s/byte), both on log axes; one colour scale, dark is more."""
    figure = _figure(6.0, 4.4)
    axes = figure.subplots()
    mesh = axes.pcolormesh(
        [value * 1e9 for value in b], [value * 1e6 for value in a], gains, cmap="cividis_r", shading="nearest"
    )
    axes.set(xscale="log", yscale="log", xlabel="b (ns per byte)", ylabel="a (µs per message)", title=title)
    figure.colorbar(mesh, label=label)
    return figure
