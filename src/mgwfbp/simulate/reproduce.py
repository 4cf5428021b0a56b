"""The paper's tables beside ours: what must match is checked, what cannot is shown with its distance.

What must match: the iteration times that the authors' formulas give for their own trace, and the claims made from them.
What need not: measured images/s (our input for them is one trace and one OSU log), and every net whose layer times are
estimates here, because no trace of it is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mgwfbp.schedule import AffineCost, LayerProfile, Workload, lower_bound_s, make_schedule, predict
from mgwfbp.simulate.figures import read_shipped
from mgwfbp.simulate.specs import AnyCost, cluster_from_spec, scaled, workload_from_spec
from mgwfbp.simulate.sweep import Row, sweep

METHODS = ("wfbp", "single", "mgwfbp")
NODES = (2, 4, 8, 16, 32, 64)


@dataclass
class Report:
    """A table of the report. `tolerance` is the relative difference up to which `ours` must match (None: shown only).

    A line is (labels, what the paper has or None, ours).
    """

    title: str
    text: str
    columns: tuple[str, ...]
    unit: str
    tolerance: float | None
    digits: int = 1
    lines: list[tuple[tuple[str, ...], float | None, float]] = field(default_factory=list)

    def add(self, labels: Sequence[object], paper: float | None, ours: float) -> None:
        """One line more."""
        self.lines.append((tuple(map(str, labels)), paper, ours))

    def failures(self) -> list[str]:
        """The lines that should match and do not, in words."""
        if self.tolerance is None:
            return []
        return [
            f"{self.title}: {', '.join(labels)}: {ours:.{self.digits}f} {self.unit}, {paper:.{self.digits}f} expected"
            for labels, paper, ours in self.lines
            if paper is not None and abs(ours / paper - 1) > self.tolerance
        ]

    def markdown(self) -> str:
        """The table with its text."""
        rule = "shown, not checked" if self.tolerance is None else f"must match within {self.tolerance:.1%}"
        head = [*self.columns, f"paper ({self.unit})", f"ours ({self.unit})", "difference"]
        rows = [
            f"## {self.title}",
            "",
            f"{self.text} ({rule})",
            "",
            f"| {' | '.join(head)} |",
            "|" + "---|" * len(head),
        ]
        for labels, paper, ours in self.lines:
            theirs = "" if paper is None else f"{paper:.{self.digits}f}"
            difference = "" if paper is None else f"{ours / paper - 1:+.1%}"
            rows.append(f"| {' | '.join(labels)} | {theirs} | {ours:.{self.digits}f} | {difference} |")
        return "\n".join(rows) + "\n"


def reproduce() -> list[Report]:
    """Every table that can be made from the public figures, ours beside the paper's."""
    paper = read_shipped("paper", "mgwfbp")
    return [
        simulated_googlenet(paper),
        past_the_paper(paper),
        claims(paper),
        counter_example(),
        *(k80_cluster(paper, net) for net in ("googlenet", "resnet50")),
        *(v100_cluster(paper, network) for network in ("v100-10gbe", "v100-56gib")),
    ]


def simulated_googlenet(paper: dict[str, Any]) -> Report:
    """Iteration times of the K80 GoogLeNet trace under the authors' ring."""
    known = paper["googlenet_simulated_ms"]
    report = Report(
        "GoogLeNet on a simulated K80 cluster",
        "Iteration time from the public trace by the authors' formulas. The paper's column: an independent program.",
        ("nodes", "schedule"),
        "ms",
        0.001,
    )
    for row in googlenet_sweep(sorted({*NODES, *known["nodes"]})):
        told = row.nodes in known["nodes"] and row.schedule in known
        expected = known[row.schedule][known["nodes"].index(row.nodes)] if told else None
        report.add((row.nodes, row.schedule), expected, row.iteration_s * 1e3)
    return report


def past_the_paper(paper: dict[str, Any]) -> Report:
    """The same trace with messages behind the next forward, too (docs/next-forward.md)."""
    known = paper["next_forward_ms"]
    report = Report(
        "GoogLeNet past the paper: behind the next forward, too",
        "Iteration time on the same cluster. Not the paper's: the column holds what two independent programs computed. "
        "`bound` is what no schedule can undercut, `dear:…` DeAR's split with buckets of a fixed size, and the best of "
        "many such sizes, for which nothing is compared.",
        ("nodes", "schedule"),
        "ms",
        0.001,
        digits=2,
    )
    workload, cluster = workload_from_spec("k80-googlenet"), cluster_from_spec("k80-10gbe")
    for place, nodes in enumerate(known["nodes"]):
        cost = cluster.cost(nodes)
        for name in ("optimal", "dear:25MB", "pipelined", "sharded"):
            report.add((nodes, name), known[name][place], _iteration(workload, cost, name) * 1e3)
        tuned = min(_iteration(workload, cost, f"dear:{size}kB") for size in range(1000, 20001, 1000))
        report.add((nodes, "dear, best size"), None, tuned * 1e3)
        report.add((nodes, "bound"), known["bound"][place], lower_bound_s(workload, cost) * 1e3)
    return report


def googlenet_sweep(nodes: Sequence[int] = NODES) -> list[Row]:
    """The sweep behind the first table and the speed-up plot."""
    return sweep(
        workload_from_spec("k80-googlenet"), cluster_from_spec("k80-10gbe"), nodes, (*METHODS, "optimal", "pipelined")
    )


def claims(paper: dict[str, Any]) -> Report:
    """The abstract's gains at 64 nodes."""
    report = Report(
        "Gains at 64 nodes",
        "Abstract: MG-WFBP is up to 1.7× and 1.3× faster than WFBP and SyncEASGD with GoogLeNet, 1.75× and 1.45× with "
        "ResNet-50. Ours beside it: the paper's algorithm (mgwfbp) and the exact schedule. ResNet-50's layer times are "
        "an estimate here, so its lines are not compared.",
        ("net", "schedule", "against"),
        "×",
        0.05,  # the abstract gives one decimal
        digits=2,
    )
    cluster = cluster_from_spec("k80-10gbe")
    for net in ("googlenet", "resnet50"):
        times = {row.schedule: row.iteration_s for row in sweep(workload_from_spec(f"k80-{net}"), cluster, [64])}
        for schedule in ("mgwfbp", "optimal"):
            for against in ("wfbp", "single"):
                claim = paper["claims_64_nodes"][net][against] if (net, schedule) == ("googlenet", "mgwfbp") else None
                report.add((net, schedule, against), claim, times[against] / times[schedule])
    return report


def counter_example() -> Report:
    """The smallest workload on which Algorithm 1 is beaten."""
    report = Report(
        "Algorithm 1 is not optimal",
        "Three layers, ready after 1, 1.9 and 2.8, of sizes 5, 0, 0, and t(M) = 1 + M: the greedy merges all of them.",
        ("schedule", "buckets"),
        "s",
        1e-9,
    )
    layers = [LayerProfile(str(i), size, size, time) for i, (time, size) in enumerate([(1.0, 5), (0.9, 0), (0.9, 0)])]
    work, cost = Workload("counter-example", 1, 0.0, tuple(layers)), AffineCost(1.0, 1.0)
    for name, expected in (("mgwfbp", 8.8), ("optimal", 8.0)):
        schedule = make_schedule(name, work, cost)
        report.add((name, len(schedule.buckets)), expected, predict(work, schedule, cost).iteration_s)
    return report


def k80_cluster(paper: dict[str, Any], net: str) -> Report:
    """Measured images/s of the real K80 cluster beside predictions from public logs."""
    figures = paper["k80_images_per_s"]
    work = workload_from_spec(f"k80-{net}")
    one_node = figures[net]["wfbp"][0]
    compute = work.batch_size / one_node
    work = scaled(work, compute_scale=(work.forward_s + work.backward_s) / compute)
    times = "the trace" if net == "googlenet" else "an estimate of the layer times"
    report = Report(
        f"{net} on the real K80 cluster, 10 GbE",
        f"Measured there; ours is predicted from {times}, scaled to the measured {one_node} images/s of one node, and "
        "from the public OSU log of that number of nodes.",
        ("nodes", "schedule"),
        "images/s",
        None,
    )
    cluster = cluster_from_spec("k80-10gbe-osu")
    for place, nodes in enumerate(figures["nodes"][1:], start=1):
        for method in METHODS:
            seconds = _iteration(work, cluster.cost(nodes), method)
            report.add((nodes, method), figures[net][method][place], nodes * work.batch_size / seconds)
    return report


def v100_cluster(paper: dict[str, Any], network: str) -> Report:
    """Measured seconds an iteration on 16 V100 beside predictions from estimates."""
    report = Report(
        f"16 V100 on {network.removeprefix('v100-')}",
        "Measured there; ours is predicted from estimated layer times, scaled to the measured compute time, and from "
        "the authors' fitted line for 16 GPUs; fp16 halves the messages. The measured times are longer throughout, "
        "even for `single`, which needs no layer times (compute + a + b·M): the fitted line does not hold all that a "
        "message cost there.",
        ("net", "type", "schedule"),
        "s",
        None,
        digits=3,
    )
    cost = cluster_from_spec(network).cost(16)
    for net, figures in paper["v100_16_gpus"]["nets"].items():
        for kind in ("fp32", "fp16"):
            work = _as_type(workload_from_spec(f"v100-{net}"), kind, figures["compute"][kind])
            for method, measured in zip(METHODS, figures[network][kind], strict=True):
                report.add((net, kind, method), measured, _iteration(work, cost, method))
            report.add((net, kind, "optimal"), None, _iteration(work, cost, "optimal"))
    return report


def _as_type(work: Workload, kind: str, compute_s: float) -> Workload:
    """`work` with messages of that type's width, and forward and backward scaled to `compute_s` together."""
    work = scaled(work, compute_scale=(work.forward_s + work.backward_s) / compute_s)
    if kind == "fp32":
        return work
    return replace(work, layers=tuple(replace(layer, nbytes=layer.nbytes // 2) for layer in work.layers))


def _iteration(work: Workload, cost: AnyCost, name: str) -> float:
    return predict(work, make_schedule(name, work, cost), cost).iteration_s


def measured_speedups(net: str = "googlenet") -> list[tuple[str, int, float]]:
    """(schedule, nodes, speed-up) as measured on the real K80 cluster: reference marks for the speed-up plot."""
    figures = read_shipped("paper", "mgwfbp")["k80_images_per_s"]
    one_node = figures[net]["wfbp"][0]
    return [
        (method, nodes, value / one_node)
        for method in METHODS
        for nodes, value in zip(figures["nodes"][1:], figures[net][method][1:], strict=True)
    ]
