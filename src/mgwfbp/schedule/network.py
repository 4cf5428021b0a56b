"""A network, measured or given: what its messages cost, as a NETWORK file holds it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from mgwfbp.schedule.cost import AffineCost, Cost, TableCost

ALGORITHMS, WIRES = ("auto", "mpi", "direct"), ("fp32", "bf16", "auto")  # how messages are summed, and what travels


@dataclass(frozen=True)
class Network:
    """All-reduces of `nbytes[i]` bytes take `seconds[i]` between `ranks` ranks; `source` says how that is known.

    `reduce_scatter_s` and `all_gather_s`, seconds at the same sizes, may be unknown. `a_s` + `b_s_per_byte` · bytes is
    the line through the table, `r2` how well it explains it. Where there are several ways to sum, `algorithms[i]` names
    the one that is taken at `nbytes[i]`, and `by_algorithm` has the seconds of each. With the `wire` "bf16" messages
    have half the bytes that are named.
    """

    source: str
    ranks: int
    nbytes: tuple[float, ...]
    seconds: tuple[float, ...]
    a_s: float
    b_s_per_byte: float
    r2: float
    reduce_scatter_s: tuple[float, ...] | None = None
    all_gather_s: tuple[float, ...] | None = None
    algorithms: tuple[str, ...] | None = None
    by_algorithm: dict[str, tuple[float, ...]] | None = None
    wire: str = "fp32"

    def __post_init__(self) -> None:
        # MPICH calls itself "MPICH Version:      5.0.2".
        object.__setattr__(self, "source", " ".join(self.source.split()))

    @cached_property
    def cost(self) -> TableCost:
        """The table as a cost."""
        sizes = tuple(map(float, self.nbytes))
        halves = None
        if self.reduce_scatter_s is not None and self.all_gather_s is not None:
            halves = TableCost(sizes, self.reduce_scatter_s), TableCost(sizes, self.all_gather_s)
        return TableCost(sizes, self.seconds, halves, self.wire == "bf16")

    @property
    def summed(self) -> str:
        """Which algorithm serves which sizes: "mpi", or "mpi to 65.5 kB, direct above it"."""
        names = self.algorithms or ()
        runs = [place for place in range(len(names)) if place + 1 == len(names) or names[place] != names[place + 1]]
        limits = [names[place] + f" to {_size(self.nbytes[place])}" for place in runs[:-1]]
        return ", ".join([*limits, names[-1] + (" above it" if limits else "")]) if names else ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of a NETWORK file."""
        values = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        return {key: value for key, value in values.items() if value is not None}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Network:
        """The network in the object that `to_dict` made."""
        lists: dict[str, Any] = {key: tuple(part) if isinstance(part, list) else part for key, part in value.items()}
        return cls(**{key: part for key, part in lists.items() if key in cls.__dataclass_fields__})


def _size(nbytes: float) -> str:
    """For people: 64 kB."""
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000 or unit == "MB":
            break
        nbytes /= 1000
    return f"{nbytes:.3g} {unit}"


def network_of(cost: AffineCost | TableCost, sizes: list[int], source: str, ranks: int) -> Network:
    """The network whose `cost` is known, at `sizes` bytes or those of its own table."""
    nbytes: tuple[float, ...] = cost.nbytes if isinstance(cost, TableCost) else tuple(sizes)
    parts: list[Cost] = [*cost.halves] if cost.halves else []
    scatter, gather = (tuple(float(part(float(size))) for size in nbytes) for part in parts) if parts else (None, None)
    line = cost.affine if isinstance(cost, TableCost) else cost
    seconds = tuple(float(cost(float(size))) for size in nbytes)
    r2 = cost.affine.r2 if isinstance(cost, TableCost) else 1.0
    wire = "bf16" if cost.halved else "fp32"
    return Network(source, ranks, nbytes, seconds, line.a, line.b, r2, scatter, gather, wire=wire)
