"""What `replay` and `bench` share: the table of measured schedules, and a world in which something is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mgwfbp.cli.tables import print_table
from mgwfbp.errors import SharedError

if TYPE_CHECKING:
    from mgwfbp.comm import World


def need_ranks(world: World, command: str) -> None:
    """Raise SharedError where there is one rank only: it sends nothing, so what is measured would mean nothing."""
    if world.size == 1:
        raise SharedError(f"one rank sends nothing: start it with mpirun -n 2 mgwfbp {command}")


def print_rows(rows: list[dict[str, Any]]) -> None:
    """A line a schedule: what was predicted and measured, how much of the messages backward and forward (b/f) hid.

    The last columns are how many times faster than `wfbp` and `single` it was measured to be.
    """
    measured = {row["schedule"]: row["measured_iteration_s"] for row in rows}
    against = [name for name in ("wfbp", "single") if name in measured]
    heads = ["schedule", "buckets", "predicted ms", "measured ms", "ratio", "(quartiles)", "overlap", "ms behind b/f"]
    cells = [
        [
            row["schedule"],
            str(row["buckets"]),
            f"{row['iteration_s'] * 1e3:.2f}",
            f"{row['measured_iteration_s'] * 1e3:.2f}",
            f"{row['ratio']:.3f}",
            f"{row['ratio_low']:.3f}–{row['ratio_high']:.3f}",
            f"{row['overlap']:.0%}",
            f"{row['behind_backward_s'] * 1e3:.1f}/{row['behind_forward_s'] * 1e3:.1f}",
            *(f"{measured[name] / row['measured_iteration_s']:.2f}×" for name in against),
        ]
        for row in rows
    ]
    print_table([*heads, *(f"vs {name}" for name in against)], cells)
