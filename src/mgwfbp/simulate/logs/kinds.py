"""Which kind of log a file is, by what no other kind holds."""

from __future__ import annotations

import re
from typing import NamedTuple

from mgwfbp.errors import UserError


class Kind(NamedTuple):
    """A kind of log: the command that reads it, its name in a sentence, and what it looks like."""

    command: str
    name: str
    sign: re.Pattern[str]


KINDS = (
    Kind("bcaffe-log", "B-Caffe training log", re.compile(r"distributed\.cpp:\d+\]\s*\[")),
    Kind("osu-log", "OSU micro-benchmarks log", re.compile(r"#\s*OSU\s+\S|#\s*Size\s{2,}\S")),
    Kind(
        "nccl-log",
        "nccl-tests log",
        re.compile(r"\b(?:size|bytes)\s+(?:count|N)\s+type\b|\bnThread\s+\d|Collective test starting:"),
    ),
    Kind("imb-log", "Intel MPI Benchmarks log", re.compile(r"#\s*Benchmarking\s+[A-Za-z]|#bytes\s+#repetitions\b")),
)


def log_kind(text: str, where: str) -> Kind:
    """The kind of the log `text`. Raises UserError, beginning with `where`, if it is none or several of `KINDS`."""
    found = [kind for kind in KINDS if kind.sign.search(text)]
    if not found:
        known = ", ".join(f"{kind.name} ({kind.command})" for kind in KINDS)
        raise UserError(f"{where}: no log of a known kind; there are {known}")
    if len(found) > 1:
        both = " and ".join(kind.name for kind in found)
        commands = " or ".join(f"mgwfbp import {kind.command}" for kind in found)
        raise UserError(f"{where}: is {both} in one; say which is meant: {commands}")
    return found[0]
