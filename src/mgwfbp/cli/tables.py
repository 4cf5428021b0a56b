"""Tables and numbers as text: as wide as they need, whether a terminal, a pipe or a file takes them."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str] = ("schedule",)) -> None:
    """Print `rows` of cells below `heads`. A row without cells is an empty line.

    Columns whose head is in `left` begin at the left, all others end at the right.
    """
    # No cell is cut or broken to fit: a pipe has no width, and what reads it wants whole names.
    widths = [max(map(len, column)) for column in zip(heads, *(row for row in rows if row), strict=True)]
    places = [str.ljust if head in left else str.rjust for head in heads]
    for row in (heads, *rows):
        cells = (place(cell, width) for place, cell, width in zip(places, row, widths, strict=bool(row)))
        say("  ".join(cells).rstrip())


def say(line: str) -> None:
    """Print a line on the standard output of the moment, in whatever letters it has."""
    sys.stdout.write(f"{line}\n")  # click.echo would write UTF-8 to a terminal that is ASCII


def percent(share: float) -> str:
    """`share` in percent; what rounds to none is 0.0%, also where rounding errors have made it negative."""
    return f"{round(share, 3) + 0.0:.1%}"


def counted(number: int, noun: str) -> str:
    """`number` and the noun: "1 rank", "2 ranks"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
