"""The table of measured schedules that `replay` and `bench schedules` print."""

from __future__ import annotations

from typing import Any

import click


def print_rows(rows: list[dict[str, Any]]) -> None:
    """A line a schedule: what was predicted and measured, how much of the messages backward and forward (b/f) hid.

    The last columns are how many times faster than `wfbp` and `single` it was measured to be.
    """
    measured = {row["schedule"]: row["measured_iteration_s"] for row in rows}
    against = [name for name in ("wfbp", "single") if name in measured]
    first = max(8, *(len(row["schedule"]) for row in rows))
    heads = [("buckets", 9), ("predicted", 11), ("measured ms", 13), ("ratio", 7), ("(quartiles)", 15), ("overlap", 9)]
    heads += [("ms behind b/f", 15)]
    click.echo(f"{'schedule':<{first}}" + "".join(f"{head:>{width}}" for head, width in heads), nl=False)
    click.echo("".join(f"{'vs ' + name:>11}" for name in against))
    for row in rows:
        cells = [
            str(row["buckets"]),
            f"{row['predicted_iteration_s'] * 1e3:.2f}",
            f"{row['measured_iteration_s'] * 1e3:.2f}",
            f"{row['ratio']:.3f}",
            f"{row['ratio_low']:.3f}–{row['ratio_high']:.3f}",
            f"{row['overlap']:.0%}",
            f"{row['behind_backward_s'] * 1e3:.1f}/{row['behind_forward_s'] * 1e3:.1f}",
        ]
        line = "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, heads, strict=True))
        gains = (f"{measured[name] / row['measured_iteration_s']:>10.2f}×" for name in against)
        click.echo(f"{row['schedule']:<{first}}{line}{''.join(gains)}")
