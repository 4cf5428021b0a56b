"""From the rows of a log to a NETWORK file: which rows belong together, and which must not be averaged.

A sweep is what one job measured: sizes that ascend. A log may hold several, of several rank counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mgwfbp.errors import UserError
from mgwfbp.schedule import TableCost, fit_affine

# Up to here nearly all of a message's time is its start-up; a log that begins above has not measured it.
MOST_STARTUP_NBYTES = 4096


@dataclass
class Sweep:
    """All-reduces of `nbytes[i]` bytes took `seconds[i]`, in one job of `ranks` ranks (None: the log does not say).

    `kind` is the test that measured it.
    """

    kind: str
    ranks: int | None
    nbytes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


class Sweeps:
    """Sorts the rows of a log into sweeps, `all`, and knows the `others`: tests that are no all-reduce."""

    def __init__(self) -> None:
        self.all: list[Sweep] = []
        self.others: list[str] = []
        self._open: dict[tuple[str, int | None], Sweep] = {}

    def begin(self) -> None:
        """A heading: the rows below it belong to none of the sweeps so far."""
        self._open = {}

    def skip(self, name: str) -> None:
        """The log holds a test that is no all-reduce."""
        if name not in self.others:
            self.others.append(name)

    def add(self, kind: str, ranks: int | None, nbytes: float, seconds: float, place: str) -> None:
        """A row, `place` says where it stands. Size 0, a barrier, is left out.

        Raises UserError if its size neither ascends nor is the first of its sweep again: silently taken, a row that
        has lost its first digits would spoil the costs, and so would rows of two jobs that ran at the same time.
        """
        if nbytes == 0:
            return
        sweep = self._open.get((kind, ranks))
        if sweep is None or nbytes == sweep.nbytes[0]:
            sweep = self._open[kind, ranks] = Sweep(kind, ranks)
            self.all.append(sweep)
        elif nbytes <= sweep.nbytes[-1]:
            raise UserError(
                f"{place}: {int(nbytes)} bytes after {sweep.nbytes[-1]}, but sizes ascend in a table: the row is "
                f"damaged, or the lines of two jobs are mixed (did the launcher start separate worlds?)"
            )
        sweep.nbytes.append(int(nbytes))
        sweep.seconds.append(seconds)

    def network(
        self, where: str, source: str, *, ranks: int | None, program: str, preferred: Sequence[str]
    ) -> dict[str, Any]:
        """The object of the NETWORK file: one network, or {"networks": […]} with one for each number of ranks.

        Where the log says the ranks, `ranks` picks those; where it does not, `ranks` is their number. Of several kinds
        of test the first of `preferred` that is there counts. Raises UserError, beginning with `where`, if the log
        holds no all-reduces or what it holds must not be averaged; `program` is what to run for a log that does.
        """
        if self.others and not self.all:
            raise UserError(f"{where}: holds {', '.join(self.others)}, no all-reduce; give the output of {program}")
        kinds = list(dict.fromkeys(sweep.kind for sweep in self.all))
        kind = next((name for name in preferred if name in kinds), kinds[0] if len(kinds) == 1 else None)
        if kinds and kind is None:
            raise UserError(f"{where}: holds {', '.join(kinds)}, and no {preferred[0]}; give a log of one of them")
        sweeps = [sweep for sweep in self.all if sweep.kind == kind]
        counts = sorted({sweep.ranks for sweep in sweeps if sweep.ranks is not None})
        said = ", ".join(map(str, counts))
        if counts and any(sweep.ranks is None for sweep in sweeps):
            raise UserError(f"{where}: holds rows of {said} ranks and rows that do not say of how many; split it")
        if counts and ranks is not None and ranks not in counts:
            raise UserError(f"{where}: is of {said} ranks, --ranks {ranks} is not among them")
        if not counts:
            network = _network(sweeps, where, source, ranks)
            if len(sweeps) > 1 and ranks is None:
                raise UserError(
                    f"{where}: holds {len(sweeps)} tables and does not say of how many ranks each is; if all are of N, "
                    f"say --ranks N and their mean is taken, else give one log for each number of ranks"
                )
            return network
        networks = [
            _network([sweep for sweep in sweeps if sweep.ranks == count], where, source, count)
            for count in counts
            if ranks in (None, count)
        ]
        return networks[0] if len(networks) == 1 else {"networks": networks}


def _network(sweeps: list[Sweep], where: str, source: str, ranks: int | None) -> dict[str, Any]:
    """The NETWORK object of sweeps that measured the same: sizes measured several times count by their mean."""
    by_size: dict[int, list[float]] = {}
    for sweep in sweeps:
        for size, seconds in zip(sweep.nbytes, sweep.seconds, strict=True):
            by_size.setdefault(size, []).append(seconds)
    if len(by_size) < 2:
        between = f" between {ranks} ranks" if ranks else ""
        raise UserError(f"{where}: holds {len(by_size)} measured size(s){between}, two or more are needed")
    sizes = sorted(by_size)
    means = [sum(by_size[size]) / len(by_size[size]) for size in sizes]
    if sizes[0] > MOST_STARTUP_NBYTES:
        if startup_beyond(sizes, means) <= 0:
            raise UserError(
                f"{where}: the smallest size is {sizes[0]:,} bytes, and the line through the times leaves nothing for "
                f"a message's start-up; measure smaller sizes, too (from 1 KiB on)"
            )
        source += f"; below {sizes[0]} bytes by the line through the table"
    fit = fit_affine(sizes, means)
    return {
        "source": source,
        "ranks": ranks,
        "nbytes": sizes,
        "seconds": means,
        "a_s": fit.a,
        "b_s_per_byte": fit.b,
        "r2": fit.r2,
    }


def startup_beyond(nbytes: Sequence[float], seconds: Sequence[float]) -> float:
    """What this table makes of a message of no bytes, in seconds: beyond its smallest size, so by its line."""
    return float(TableCost(tuple(map(float, nbytes)), tuple(seconds))(0.0))
