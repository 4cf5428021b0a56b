"""The logs of the Intel MPI Benchmarks' Allreduce."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mgwfbp.errors import UserError
from mgwfbp.simulate.logs.sweeps import Sweeps
from mgwfbp.simulate.logs.text import amount, like, lines, row_fields

_BENCHMARK = re.compile(r"#\s*Benchmarking\s+([A-Za-z]\S*)")
_PROCESSES = re.compile(r"#\s*#processes\s*=\s*(\S+)")
_HEADING = re.compile(r"#bytes\s+#repetitions\b.*")
_NOT_MEASURED = re.compile(r"time-out|int-overflow", re.IGNORECASE)

# benchmark -> the column with the time of the all-reduce alone; the first that is in the log counts
COLUMNS = {"Allreduce": "t_avg[usec]", "Iallreduce_pure": "t_avg[usec]", "Iallreduce": "t_pure[usec]"}


def imb_network(text: str, where: str, *, ranks: int | None = None) -> dict[str, Any]:
    """The object of a NETWORK file from a log of IMB's Allreduce, by `t_avg` (µs); other benchmarks in it are skipped.

    The non-blocking Iallreduce counts, by `t_pure`, where there is no Allreduce. There is a network for each number of
    processes, and `ranks` picks one; where the log does not say it, `ranks` is the number (None: not known). Sizes that
    IMB left out for lack of time are left out. Raises UserError, with the line's number, for a damaged row; for a log
    without Allreduce; and for several tables that do not say their ranks.
    """
    sweeps = Sweeps()
    benchmark, processes, before, names = "", None, like(""), list[str]()
    for number, line in lines(text):
        place = f"{where}: line {number}"
        if match := _BENCHMARK.search(line):
            benchmark, processes, names = match[1], None, []
            if benchmark not in COLUMNS:
                sweeps.skip(benchmark)
        elif benchmark not in COLUMNS:
            continue
        elif match := _PROCESSES.search(line):
            processes = int(amount(match[1], place, whole=True))
            if processes == 0:
                raise UserError(f"{place}: an all-reduce between 0 processes")
        elif match := _HEADING.search(line):
            before, names = like(line[: match.start()]), match[0].split()
            if COLUMNS[benchmark] not in names:
                raise UserError(f"{place}: {benchmark}'s heading has no column {COLUMNS[benchmark]!r}")
            sweeps.begin()
        elif names and not _NOT_MEASURED.search(line) and (fields := row_fields(line, before, len(names))):
            if len(fields) != len(names):
                found = line.strip()[:60]
                raise UserError(f"{place}: {len(fields)} columns, its heading has {len(names)}; found {found!r}")
            seconds = amount(fields[names.index(COLUMNS[benchmark])], place) * 1e-6
            sweeps.add(benchmark, processes, amount(fields[0], place, whole=True), seconds, place)
    source = f"IMB log {Path(where).name}"
    return sweeps.network(where, source, ranks=ranks, program="IMB-MPI1 Allreduce", preferred=tuple(COLUMNS))
