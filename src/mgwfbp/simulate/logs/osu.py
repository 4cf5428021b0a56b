"""The logs of the OSU micro-benchmarks' all-reduces: osu_allreduce and the non-blocking osu_iallreduce."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mgwfbp.errors import UserError
from mgwfbp.simulate.logs.sweeps import Sweeps
from mgwfbp.simulate.logs.text import amount, like, lines, row_fields

_TITLE = re.compile(r"#\s*(OSU\s+\S.*)")
_HEADING = re.compile(r"#\s*(Size\b.*)")
_ALLREDUCE = re.compile(r"\bI?all_?reduce\b", re.IGNORECASE)
_OVERLAPPED = re.compile(r"non-?blocking|\bIall_?reduce\b", re.IGNORECASE)

BLOCKING, UNTITLED, NON_BLOCKING = "Allreduce", "a table without title", "Non-blocking Allreduce"


def osu_network(text: str, where: str, *, ranks: int | None = None) -> dict[str, Any]:
    """The object of a NETWORK file from an OSU all-reduce log: rows `size  average µs …` or `ranks,size  average µs …`.

    Of a non-blocking test the column `Pure Comm.` counts, the all-reduce alone. Other columns are ignored (minimum,
    maximum, iterations, percentiles of newer versions), and so are other tests in the same log. Where the rows say
    their ranks, there is a network for each number of them, and `ranks` picks one; where they do not, `ranks` is their
    number (None: not known). Raises UserError, with the line's number, for a damaged row; for a log without an
    all-reduce; and for several tables that do not say their ranks.
    """
    sweeps = Sweeps()
    headed = any(_HEADING.search(line) for _, line in lines(text))
    kind: str | None = UNTITLED  # None: another test
    title, before, columns = "", like(""), None
    column = None if headed else 1  # of the latency; None: not known, so there are no rows yet
    for number, line in lines(text):
        place = f"{where}: line {number}"
        if match := _TITLE.search(line):
            title = match[1].strip()
            kind = (NON_BLOCKING if _OVERLAPPED.search(title) else BLOCKING) if _ALLREDUCE.search(title) else None
            column = None if headed or kind == NON_BLOCKING else 1
            if kind is None:
                sweeps.skip(title)
        elif match := _HEADING.search(line):
            names = re.split(r"\s{2,}|\t", match[1].strip())
            before, columns = like(line[: match.start()]), len(names) if len(names) > 1 else None
            column = _latency_column(names)
            if column is None and kind is not None:
                if kind == NON_BLOCKING:
                    raise UserError(f"{place}: the heading of a non-blocking test has no column 'Pure Comm.(us)'")
                sweeps.skip(title or " ".join(names))
            sweeps.begin()
        elif kind is not None and column is not None and (fields := row_fields(line, before, columns)):
            sizes, found = fields[0].split(","), line.strip()[:60]
            if len(fields) < 2 or len(sizes) > 2:
                raise UserError(f"{place}: needs a size and a latency in µs, found {found!r}")
            if columns is not None and len(fields) != columns:
                raise UserError(f"{place}: {len(fields)} columns, its heading has {columns}; found {found!r}")
            own = int(amount(sizes[0], place, whole=True)) if len(sizes) == 2 else None
            if own == 0:
                raise UserError(f"{place}: an all-reduce between 0 ranks, found {found!r}")
            size, seconds = amount(sizes[-1], place, whole=True), amount(fields[column], place) * 1e-6
            sweeps.add(kind, own, size, seconds, place)
    source = f"OSU all-reduce log {Path(where).name}"
    order = (BLOCKING, UNTITLED, NON_BLOCKING)
    return sweeps.network(where, source, ranks=ranks, program="osu_allreduce", preferred=order)


def _latency_column(names: list[str]) -> int | None:
    """Which column has the time of an all-reduce in µs, None if none has it. One name: its spaces were lost."""
    for place, name in enumerate(names):
        if re.match(r"Pure Comm", name):
            return place
    overlapped = any("Overlap" in name or "Overall" in name for name in names)
    other_unit = re.search(r"\((?!us|µs)[^)]*\)|/s\b", names[min(1, len(names) - 1)])
    return None if overlapped or other_unit else 1
