"""What the command line calls a WORKLOAD and a network SPEC, by name or file.

A workload is a file, a run folder, which has one, or a shipped one (`k80-googlenet`). A network is a file, a run
folder, a line, a formula or one of the paper's clusters:

    network.json                                              what `mgwfbp bench allreduce -o` wrote
    networks.json:8                                           of several networks in a file the one of 8 ranks
    a=633.5us,b=3.92ns                                        seconds a message, seconds a byte
    ring:alpha=45.25us,beta=0.993ns,gamma=2.5ns,nodes=64      one of five algorithms
    k80-10gbe:64                                              a preset and its number of nodes

Where a command sweeps the number of nodes, it is left out: `ring:alpha=…,beta=…,gamma=…`, `k80-10gbe`. A file may hold
one cost for each number of nodes: {"networks": [NETWORK, …]}, each with its "ranks". Beside that, "unit" says what is
counted ("nodes", "GPUs" or, where it is missing, "ranks"), and "note" what to know when reading its figures.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from mgwfbp.errors import UserError, unknown_name
from mgwfbp.fields import assignments, number, seconds_from_text
from mgwfbp.files import read_json
from mgwfbp.schedule import AffineCost, TableCost, Workload, workload_from_dict
from mgwfbp.schedule.clusters import ALGORITHMS, ring
from mgwfbp.simulate.figures import read_shipped, shipped

AnyCost = AffineCost | TableCost
UNITS = ("nodes", "GPUs", "ranks")


class Cluster(NamedTuple):
    """A network for any number of nodes: `cost(nodes)`; `nodes` is the number that the SPEC named, if it did.

    `known` are the node counts it can give (None: all); with `fixed` the cost is one and the same for all of them.
    `unit` is what those numbers count, one of UNITS: nodes, GPUs (several may share a node), or ranks where neither is
    known. `note` is a line for readers of its figures, "" where there is nothing to say.
    """

    spec: str
    cost: Callable[[int], AnyCost]
    nodes: int | None = None
    known: tuple[int, ...] | None = None
    fixed: bool = False
    unit: str = "ranks"
    note: str = ""

    def between(self, n: int) -> AnyCost:
        """The all-reduce cost between `n` of them; one alone sends nothing on any network. Raises UserError."""
        return self.cost(n) if n > 1 else AffineCost(0.0, 0.0)


def cost_from_spec(spec: str) -> AnyCost:
    """The all-reduce cost that a network SPEC stands for. Raises UserError that names the part that is wrong."""
    cluster = cluster_from_spec(spec)
    if cluster.nodes is None and not cluster.fixed:
        joint = ",nodes=" if spec.partition(":")[0] in ALGORITHMS else ":"
        _nodes("", f"network {spec!r}", joint, cluster.unit)
    return cluster.cost(cluster.nodes or 1)


def cluster_from_spec(spec: str) -> Cluster:
    """The network that `spec` stands for, with or without its number of nodes. Raises UserError."""
    where = f"network {spec!r}"
    name, colon, rest = spec.partition(":")
    if name == "k80-10gbe":
        return Cluster(spec, k80_10gbe, _nodes(rest, where) if colon else None, unit="nodes")
    if name in shipped("network"):
        cluster = cluster_from_dict(read_shipped("network", name), f"network {name}", spec)
        return cluster._replace(nodes=_nodes(rest, where, unit=cluster.unit)) if colon else cluster
    if name in ALGORITHMS:
        values = assignments(rest, where, ("alpha", "beta", "gamma"), ("nodes",))
        alpha, beta, gamma = (seconds_from_text(values[key], f"{where}: {key}") for key in ("alpha", "beta", "gamma"))
        nodes = _nodes(values["nodes"], where, ",nodes=") if "nodes" in values else None
        return Cluster(spec, lambda n: ALGORITHMS[name](n, alpha, beta, gamma), nodes, unit="nodes")
    if "=" in spec and not colon and not spec.endswith(".json") and not os.path.isdir(spec):
        values = assignments(spec, where, ("a", "b"))
        cost = AffineCost(seconds_from_text(values["a"], f"{where}: a"), seconds_from_text(values["b"], f"{where}: b"))
        return Cluster(spec, lambda n: cost, fixed=True)
    file, colon, count = spec.rpartition(":")
    if os.path.exists(spec) or not (file and os.path.exists(file)):
        file, colon = spec, ""
    if not (file and os.path.exists(file)) and ((":" in spec and "=" in spec) or not re.search(r"[./]", spec)):
        raise unknown_name("network", name, ["k80-10gbe", *shipped("network"), *ALGORITHMS])
    file = _of_run(file, "network.json")
    cluster = cluster_from_dict(read_json(file, "network file"), f"network file {file}", spec)
    if colon and cluster.fixed:
        raise UserError(f"{where}: the file has one network, whose number of ranks it knows: leave :{count} out")
    return cluster._replace(nodes=_nodes(count, where, unit=cluster.unit)) if colon else cluster


def k80_10gbe(nodes: int) -> AffineCost:
    """The ring of the authors' simulator: α = 45.25 µs, 9 Gibit/s at 1.2 protocol overhead, γ = 2.5 ns/B."""
    return ring(nodes, 45.25e-6, 1.2 / (9.0 * 2**30 / 8), 2.5e-9)


def cluster_from_dict(value: dict[str, Any], where: str, spec: str) -> Cluster:
    """The network in a file: one NETWORK object, or several of different numbers of ranks. Raises UserError."""
    unit, note = value.get("unit", "ranks"), value.get("note", "")
    if unit not in UNITS:
        raise UserError(f'{where}: "unit" must be one of {", ".join(UNITS)}, found {str(unit)[:40]!r}')
    if not isinstance(note, str):
        raise UserError(f'{where}: "note" must be a text, found {str(note)[:40]!r}')
    if "networks" not in value:
        cost = cost_from_dict(value, where)
        return Cluster(spec, lambda n: cost, fixed=True, unit=unit, note=note)
    entries = value["networks"]
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise UserError(f'{where}: "networks" must be a list of JSON objects')
    table: dict[int, AnyCost] = {}
    for index, entry in enumerate(entries):
        place = f"{where}: network {index}"
        table[int(number(entry, "ranks", place))] = cost_from_dict(entry, place)

    def cost_of(nodes: int) -> AnyCost:
        if nodes not in table:
            known = ", ".join(map(str, sorted(table)))
            raise UserError(f"{where}: measured for {known} {unit} only, not for {nodes}")
        return table[nodes]

    return Cluster(spec, cost_of, known=tuple(sorted(table)), unit=unit, note=note)


def cost_from_dict(value: dict[str, Any], where: str) -> AnyCost:
    """The cost in a NETWORK object: its table, or else its line. Raises UserError that begins with `where`."""
    if "nbytes" in value or "seconds" in value:
        columns: list[tuple[float, ...]] = []
        halves = [key for key in ("reduce_scatter_s", "all_gather_s") if key in value]
        for key in ("nbytes", "seconds", *(halves if len(halves) == 2 else ())):
            column = value.get(key)
            if not isinstance(column, list):
                raise UserError(f'{where}: "{key}" must be a list of numbers')
            columns.append(tuple(number({key: item}, key, where) for item in column))
        try:
            parts = [TableCost(columns[0], column) for column in columns[2:]]
            return TableCost(columns[0], columns[1], (parts[0], parts[1]) if parts else None)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
    return AffineCost(number(value, "a_s", where), number(value, "b_s_per_byte", where))


def _nodes(text: str, where: str, joint: str = ":", unit: str = "nodes") -> int:
    if not re.fullmatch(r"\d{1,10}", text) or not 1 <= int(text) <= 10**9:
        raise UserError(
            f"{where}: needs its number of {unit}, a whole number ≥ 1, as in …{joint}64; found {text[:20]!r}"
        )
    return int(text)


def _of_run(path: str, name: str) -> str:
    """`path`, or the file `name` in it if it is a run folder."""
    return str(Path(path) / name) if os.path.isdir(path) else path


def workload_from_spec(spec: str) -> Workload:
    """The workload in a file or run folder, or the shipped one of that name (`k80-googlenet`). Raises UserError."""
    if spec in shipped("workload"):
        return workload_from_dict(read_shipped("workload", spec), f"workload {spec}")
    if "/" in spec or "." in spec or os.path.exists(spec):
        file = _of_run(spec, "workload.json")
        return workload_from_dict(read_json(file, "workload file"), f"workload file {file}")
    raise unknown_name("workload", spec, shipped("workload"))


workload = workload_from_spec  # the public names
network = cost_from_spec


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
    layers = tuple(
        replace(
            layer,
            backward_s=layer.backward_s * factor,
            forward_s=None if layer.forward_s is None else layer.forward_s * factor,
        )
        for layer in workload.layers
    )
    return replace(
        workload,
        batch_size=workload.batch_size if batch_size is None else batch_size,
        forward_s=workload.forward_s * factor,
        layers=layers,
    )
