"""The text of a log: read as people have it, split into lines and fields, and numbers in it with the place of each.

Launchers write something of their own before each line: `[1,0]<stdout>:`, `[0] `, `0: `, `node-a: `, a time. No list of
them is complete, so what stands before a table's heading is what may stand before its rows, with other digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

from mgwfbp.errors import UserError

_COLOUR = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
# `8.5`, `4,1024`, `1e-3`, and what printf writes where there is no number
_NUMERIC = re.compile(r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?|[-+]?(?:nan|inf|n/a)", re.IGNORECASE)


def read_log(path: str) -> str:
    """The text of the log `path`. Raises UserError if it cannot be read or is no text."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"log {path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:  # a name with a zero byte
        raise UserError(f"log {path!r}: cannot be read ({error})") from None
    # PowerShell's `>` writes UTF-16. A byte that is not UTF-8 can only be chatter's: all that counts here is ASCII.
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    text = data.decode(encoding, errors="replace")
    if "\0" in text:
        raise UserError(f"log {path}: not a text file")
    return text


def lines(text: str) -> Iterator[tuple[int, str]]:
    """(number from 1, line) without line ends, Windows' too, and without colours."""
    return enumerate(_COLOUR.sub("", text).splitlines(), start=1)


def amount(text: str, where: str, whole: bool = False) -> float:
    """The finite number ≥ 0 in `text`, a whole one on request. Raises UserError, beginning with `where`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise UserError(f"{where}: {kind} ≥ 0 was expected, found {text.strip()[:40]!r}")
    return value


def like(prefix: str) -> re.Pattern[str]:
    """Matches, at the start of a line, what stood before a heading, with any digits; or only spaces.

    >>> like("[1,0]<stdout>:").match("[1,3]<stdout>:    4   31.00").end()
    18
    """
    parts = re.findall(r"\d+|\s+|[^\d\s]+", prefix.strip())
    shape = "".join(r"\d+" if part.isdigit() else r"\s+" if part.isspace() else re.escape(part) for part in parts)
    return re.compile(rf"^\s*(?:{shape})?\s*")


def after(before: re.Pattern[str], line: str) -> str:
    """`line` without what `before`, made by `like`, matches at its start."""
    return before.sub("", line, count=1)


def row_fields(line: str, before: re.Pattern[str], columns: int | None) -> list[str]:
    """The fields of a row of numbers, without what the launcher wrote `before` it; none if the line is chatter.

    A row that is damaged is a row all the same: its reader raises. `columns` is how many the heading has, if known.
    """
    fields = after(before, line).split()
    if not fields or fields[0][0] not in "-0123456789":
        return []
    as_many = len(fields) == (columns or 2)
    if _NUMERIC.fullmatch(fields[0]):  # `8 fast` is a damaged row, `1 more process has sent a message` is chatter
        return fields if len(fields) == 1 or as_many or _NUMERIC.match(fields[1]) else []
    return fields if as_many and all(_NUMERIC.fullmatch(field) for field in fields[1:]) else []
