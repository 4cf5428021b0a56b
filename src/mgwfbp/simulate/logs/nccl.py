"""The output of nccl-tests' all_reduce_perf (RCCL's is the same).

A row is printed in pieces, `size count type redop root`, then four columns for each of two measurements. NCCL's own
lines may stand between the pieces, and launchers may repeat their tag before each; so a row is read piece by piece.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mgwfbp.errors import UserError
from mgwfbp.simulate.logs.sweeps import Sweeps
from mgwfbp.simulate.logs.text import after, amount, like, lines

# Newer versions name the test; of older ones the command may stand in the log.
_TEST = re.compile(
    r"Collective test starting:\s*(\w+)"
    r"|\b((?:all_reduce|all_gather|alltoallv?|broadcast|gather|reduce|reduce_scatter|scatter|sendrecv)_perf)(?:_mpi)?\s+-\w"
)
_RANK = re.compile(r"\bRank\s+(\d+)\s+(?:Group|Pid|on)\b")
_HEADING = re.compile(r"#?\s*\b((?:size|bytes)\s+(?:count|N)\s+type\b.*\btime\b.*)")
_OPERATION = r"([a-z]\w*)\s+(sum|prod|max|min|avg|mulsum|none)\b"
_ROW = re.compile(rf"(?<![\w.])(\d+)\s+(\d+)\s+{_OPERATION}")
_DAMAGED = re.compile(rf"(?<!\d)\d\S*\s+{_OPERATION}\s+-?\d")
_ROOT = re.compile(r"\s+(-1|\d+)")
_TAG = r"(?:\[[^\]]*\](?:<\w+>:)?)"
_NUMBER = r"(\d[\d.]*(?:e[-+]?\d+)?|N/A|nan|inf)"
_ITEM_NBYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("float", "int", "int32", "uint32"), 4),
    **dict.fromkeys(("double", "int64", "uint64"), 8),
}


def nccl_network(text: str, where: str, *, ranks: int | None = None) -> dict[str, Any]:
    """The object of a NETWORK file from the output of nccl-tests' all_reduce_perf.

    Of a row's two times (µs), out of place and in place, the smaller counts: they measure the same all-reduce twice,
    and what disturbs a measurement makes it longer. The ranks are counted in the lines `#  Rank  0 …`: there is a
    network for each number of them, and `ranks` picks one; without such lines `ranks` is the number (None: not known).
    Rows of float and sum count where a log has several types. Raises UserError, with the line's number, for a damaged
    row and for two jobs at the same time; for a log of other collectives; and for several tables without their ranks.
    """
    sweeps, world = Sweeps(), _World()
    layout: _Layout | None = None
    row: _Row | None = None
    other = False
    for number, line in lines(text):
        place, rest = f"{where}: line {number}", ""
        if match := _TEST.search(line):
            name = match[1] or match[2]
            other = name != "all_reduce_perf"
            if other:
                sweeps.skip(name)
        if other:
            continue
        if match := _RANK.search(line):
            world.add(int(match[1]), place)
        elif match := _HEADING.search(line):
            _complete(row)
            layout, row = _layout(line[: match.start()], match[1].split(), place), None
            world.begin()
            sweeps.begin()
        elif match := _ROW.search(line):
            if layout is None:
                raise UserError(
                    f"{place}: no heading with a 'time' column stands above it; give the whole output of "
                    f"all_reduce_perf"
                )
            _complete(row)
            row, rest = _begun(match, line, layout, place)
            world.measured = True
            if row is None:
                sweeps.skip("rows without a sum over all ranks (broadcast, reduce, all_gather, alltoall or sendrecv)")
        elif layout is not None and _DAMAGED.search(line):
            raise UserError(f"{place}: a size and a count were expected, found {line.strip()[:60]!r}")
        elif layout is not None:
            rest = " " + after(layout.before, line)
        if row is not None and row.read(rest, world.size(row.place)):
            sweeps.add(row.kind, world.size(row.place), row.nbytes, min(row.seconds), row.place)
            row = None
    _complete(row)
    source = f"nccl-tests log {Path(where).name}"
    return sweeps.network(where, source, ranks=ranks, program="all_reduce_perf", preferred=("float sum",))


class _Layout(NamedTuple):
    """What a heading tells of the rows below it."""

    before: re.Pattern[str]  # what the launcher writes before a line
    root: bool
    times: int  # how many measurements a row has
    measurement: re.Pattern[str]  # time, algorithm bandwidth, bus bandwidth, …


def _layout(prefix: str, names: list[str], place: str) -> _Layout:
    first, times = names.index("time"), names.count("time")
    width = (len(names) - first) // times
    if first not in (4, 5) or width < 3 or names[first:] != names[first : first + width] * times:
        raise UserError(f"{place}: not the heading of an nccl-tests version that is known: {' '.join(names)[:80]!r}")
    # The last column of a measurement may have chatter right behind it, as in `0node-a:497 [0] NCCL INFO`.
    return _Layout(like(prefix), first == 5, times, re.compile(rf"(?:\s|{_TAG})+" + r"\s+".join([_NUMBER] * width)))


@dataclass
class _Row:
    """A row, not all of whose measurements need have been read."""

    place: str
    kind: str
    nbytes: float
    layout: _Layout
    seconds: list[float] = field(default_factory=list)

    def read(self, text: str, ranks: int | None) -> bool:
        """Take the measurements at the start of `text`. Have all been read?

        Raises UserError if a bandwidth is not as an all-reduce's: its bus bandwidth is 2(n−1)/n times the other.
        """
        while len(self.seconds) < self.layout.times and (match := self.layout.measurement.match(text)):
            self.seconds.append(amount(match[1], self.place) * 1e-6)
            algorithm, bus = (amount(match[column], self.place) for column in (2, 3))
            if (ranks or 0) > 2 and algorithm >= 1 and bus <= algorithm:
                raise UserError(
                    f"{self.place}: a bus bandwidth of {bus:g} GB/s where the algorithm's is {algorithm:g} is no "
                    f"all-reduce's; it is another collective's row (reduce_scatter_perf, sendrecv_perf?)"
                )
            text = text[match.end() :]
        return len(self.seconds) == self.layout.times


def _begun(match: re.Match[str], line: str, layout: _Layout, place: str) -> tuple[_Row | None, str]:
    """The row that begins with `match` and what stands behind; no row if it is not an all-reduce's."""
    (size, count, kind, operation), rest = match.groups(), line[match.end() :]
    if layout.root:
        root = _ROOT.match(rest)
        if root is None:
            raise UserError(f"{place}: the row is cut off behind its operation, found {line.strip()[:60]!r}")
        rest = rest[root.end() :]
        if root[1] != "-1":
            return None, ""
    if operation == "none":
        return None, ""
    # Of a reduce_scatter and an all_gather `count` is a rank's part of `size`.
    if int(size) != int(count) * _ITEM_NBYTES.get(kind, int(size) // max(1, int(count))):
        raise UserError(
            f"{place}: {count} elements of {kind} are not {size} bytes; the row is damaged, or of another collective "
            f"(reduce_scatter_perf?)"
        )
    return _Row(place, f"{kind} {operation}", float(size), layout), rest


def _complete(row: _Row | None) -> None:
    """Raise UserError if something else begins while `row` has not got all of its times."""
    if row is not None:
        columns = (5 if row.layout.root else 4) + len(row.seconds) * row.layout.measurement.groups
        raise UserError(
            f"{row.place}: {columns} columns, the time is expected in column {columns + 1}, here or in the lines "
            f"below; the row is cut off or damaged"
        )


class _World:
    """The ranks that a log lists before a table."""

    def __init__(self) -> None:
        self.measured = False  # rows have come since: the next rank listed is of another job
        self._ranks: set[int] = set()

    def begin(self) -> None:
        """A heading; below the second one of a job there are no ranks known."""
        if self.measured:
            self._ranks, self.measured = set(), False

    def add(self, rank: int, place: str) -> None:
        """The log lists `rank`. Raises UserError if it has done so before."""
        self.begin()
        if rank in self._ranks:
            raise UserError(
                f"{place}: rank {rank} stands twice: the launcher started separate worlds, each with a rank 0 of its "
                f"own (nccl-tests built without MPI=1?), which disturbed each other; measure in one world"
            )
        self._ranks.add(rank)

    def size(self, place: str) -> int | None:
        """How many ranks there are, None if the log lists none. Raises UserError if one is missing in the list."""
        missing = set(range(len(self._ranks))) - self._ranks
        if missing:
            raise UserError(f"{place}: rank {min(missing)} is missing in the list of ranks above the table")
        return len(self._ranks) or None
