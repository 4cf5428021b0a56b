"""Tables of `mgwfbp reproduce`: every number says where it comes from, and what must match is checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

# Whose number stands beside ours; the shipped figures name the kind of each of their parts.
KINDS = {
    "printed": "printed in the paper",
    "measured": "measured by the authors",
    "program": "by the authors' program",
    "independent": "by an independent program, unpublished",
    "hand": "by hand",
}
# What ours is made of: whose rule merges the layers, and whose times they take.
FORMULAS = "their formulas, their trace"
OWN = "our schedule, their trace"


class Line(NamedTuple):
    """Our number, what it is made of (`basis`), and the number `theirs` of one of KINDS beside it, if there is one.

    `within` is the relative difference up to which the two must match; None: they are shown, not compared.
    """

    labels: tuple[str, ...]
    ours: float
    basis: str
    kind: str = ""
    theirs: float | None = None
    within: float | None = None

    @property
    def difference(self) -> float | None:
        """By how much ours is above theirs, as a share of theirs; None where nothing stands beside it."""
        return None if self.theirs is None else self.ours / self.theirs - 1

    @property
    def matches(self) -> bool | None:
        """Whether ours is as near to theirs as it must be; None where it need not be."""
        return None if self.difference is None or self.within is None else abs(self.difference) <= self.within


@dataclass
class Report:
    """A table: what it shows, the source of the numbers beside ours ("" where none is), and its lines."""

    title: str
    text: str
    columns: tuple[str, ...]
    unit: str
    source: str = ""
    digits: int = 1
    lines: list[Line] = field(default_factory=list)

    def add(
        self,
        labels: Sequence[object],
        ours: float,
        basis: str,
        kind: str = "",
        theirs: float | None = None,
        within: float | None = None,
    ) -> None:
        """One line more, as `Line` says."""
        self.lines.append(Line(tuple(map(str, labels)), ours, basis, kind, theirs, within))

    def failures(self) -> list[str]:
        """The lines that should match and do not, in words."""
        return [
            f"{self.title}: {', '.join(line.labels)}: {line.ours:.{self.digits}f} {self.unit}, "
            f"{line.theirs:.{self.digits}f} expected ({KINDS[line.kind]})"
            for line in self.lines
            if line.matches is False
        ]

    def markdown(self) -> str:
        """The table with its text; each kind of number has a column of its own."""
        kinds = [kind for kind in KINDS if any(line.kind == kind for line in self.lines)]
        head = [*self.columns, *(f"{KINDS[kind]} ({self.unit})" for kind in kinds), f"ours ({self.unit})"]
        head += ["difference"] if kinds else []
        head.append("ours is made of")
        rows = [f"## {self.title}", "", self.text, ""]
        if self.source:
            rows += [f"Beside ours: {self.source}.", ""]
        limits = [line.within for line in self.lines if line.within is not None]
        if limits:
            rows += [f"Checked where the difference says so, within {100 * max(limits):.2g} %.", ""]
        rows += [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        for line in self.lines:
            cells = [*line.labels]
            cells += [f"{line.theirs:.{self.digits}f}" if line.kind == kind else "" for kind in kinds]
            cells.append(f"{line.ours:.{self.digits}f}")
            cells += [_difference(line)] if kinds else []
            rows.append(f"| {' | '.join([*cells, line.basis])} |")
        return "\n".join(rows) + "\n"


def _difference(line: Line) -> str:
    """How far ours is from theirs; whether that is near enough stands only where it must be."""
    if line.difference is None:
        return ""
    verdict = {None: "", True: ", matches", False: ", **differs**"}[line.matches]
    return f"{round(line.difference, 3) + 0.0:+.1%}{verdict}"  # + 0.0: no −0.0


def tally(reports: Sequence[Report]) -> str:
    """How many numbers of each kind there are, how many are checked, and how many of these match: one line."""
    lines = [line for report in reports for line in report.lines]
    parts = []
    for kind, name in KINDS.items():
        mine = [line for line in lines if line.kind == kind]
        if not mine:
            continue
        verdicts = [line.matches for line in mine if line.matches is not None]
        near = [abs(line.difference or 0.0) <= 0.1 for line in mine if line.matches is None]
        said = [f"{sum(verdicts)} of {len(verdicts)} checked match"] if verdicts else []
        said += [f"{len(near)} only shown, {sum(near)} within 10 %"] if near else []
        parts.append(f"{len(mine)} {name} ({', '.join(said)})")
    ours = sum(line.basis == FORMULAS for line in lines)
    return f"{'; '.join(parts)}; {ours} of ours by {FORMULAS.replace(', ', ' from ')}"
