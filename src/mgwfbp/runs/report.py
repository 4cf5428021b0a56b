"""What rank 0 says while a run goes on: a bar on a terminal, plain flushed lines through mpirun or into a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mgwfbp.runs.provenance import heading, said
from mgwfbp.schedule import Network, Plan
from mgwfbp.train.loop import Trainer
from mgwfbp.train.planner import Drift


class Reporter:
    """Prints lines and how many of `iterations` are done. With `silent` (all ranks but 0) it prints nothing."""

    def __init__(self, iterations: int, silent: bool, ranks: int) -> None:
        self.silent, self.iterations, self.ranks = silent, iterations, ranks
        self.bar: Progress | None = None
        if not silent and hasattr(sys.stdout, "reconfigure") and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="replace")  # a terminal without × and µ shows ? instead
        # Open MPI gives rank 0 a terminal of its own, even where mpirun's output goes into a file.
        if not silent and ranks == 1 and sys.stdout.isatty():
            columns = (BarColumn(8), MofNCompleteColumn(), TimeRemainingColumn())  # fits into 80 columns
            self.bar = Progress(*columns, TextColumn("{task.description}"), console=Console(), transient=True)
            self.task = self.bar.add_task("", total=iterations)

    def __enter__(self) -> Reporter:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def line(self, text: str) -> None:
        """Print one line, above the bar if there is one."""
        if self.bar:
            self.bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
        elif not self.silent:
            print(text, flush=True)

    def advance(self, done: int, text: str) -> None:
        """`done` iterations are over; `text` says how it goes."""
        if self.bar:
            self.bar.update(self.task, completed=done, description=text)
        else:
            done_of = f"{done:>{len(str(self.iterations))}}/{self.iterations}"
            self.line(f"iteration {done_of}  {text}  {datetime.now():%H:%M:%S}")

    def start(self, trainer: Trainer, about: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> None:
        """What is about to be trained, where (`about` of `provenance`), and the network that was measured."""
        arena, world, network = trainer.net.arena, trainer.world, trainer.planner.network
        self.line(heading(about))
        if options:
            self.line(f"options: {said(options)}")
        self.line(
            f"{trainer.net.name}: {sum(arena.layer_parameters):,} parameters in {len(arena.names)} layers, "
            f"{trainer.data.name}, {world.size} rank{'s' * (world.size > 1)} × {trainer.threads} threads, "
            f"{trainer.net.kernels.name} kernels, global batch {trainer.global_batch}, {self.iterations} iterations"
        )
        if network:
            kind = "measured" if network.source.startswith("measured") else "emulated"
            fit = f" (R² {network.r2:.3f}), summed by {network.summed}" if kind == "measured" else ""
            self.line(f"{kind} all-reduce: {_line(network)}{fit}")
        elif world.size == 1:
            self.line("one rank: nothing is sent; mpirun -n 2 mgwfbp train … starts two")

    def drift(self, drift: Drift) -> None:
        """Why the ranks plan again, and what the network costs now."""
        now = f"; a message now costs {_line(drift.network).replace(' a message', '')}" if drift.network else ""
        self.line(
            f"planning again after iteration {drift.iteration}: iterations take {drift.measured_s * 1e3:.2f} ms, "
            f"{drift.predicted_s * 1e3:.2f} ms were predicted{now}"
        )

    def plan(self, plan: Plan) -> None:
        """The schedule and what is expected of it; of one rank there is nothing to say."""
        if self.ranks == 1:
            return
        layers = [layer.name for layer in plan.workload.layers]
        names = [bucket.label(layers) for bucket in plan.schedule.buckets]
        shown = " | ".join(names if len(names) <= 8 else [*names[:4], "…", *names[-3:]])
        count = f"{len(names)} bucket{'s' * (len(names) > 1)}"
        mode, policy = plan.schedule.mode, plan.schedule.policy
        mode = f" ({mode})" if plan.schedule.runs_into_forward and mode != policy else ""
        self.line(
            f"schedule {plan.schedule.policy}{mode}: {len(layers)} layers in {count} [{shown}], "
            f"predicted iteration {plan.iteration_s * 1e3:.2f} ms, overlap {plan.prediction.overlap:.0%}"
        )

    def end(self, summary: dict[str, Any], folder: Path | None) -> None:
        """Where the run folder is, and the three numbers that matter."""
        measured, predicted = summary["iteration_s"], summary["predicted_iteration_s"]
        same = len(set(summary["parameters_sha256"])) == 1
        if folder:
            self.line(f"\nrun folder           {folder}")
        judged = f"{summary.get('validated_on', 'validation')} accuracy"
        self.line(f"{judged:<20} {summary['val_accuracy']:.4f}")
        self.line(
            f"iteration            {measured * 1e3:.2f} ms measured, {predicted * 1e3:.2f} ms predicted "
            f"(ratio {measured / predicted:.2f})"
        )
        if self.ranks == 1:
            return
        self.line(
            f"overlap              {summary['overlap']:.0%} of communication: "
            f"{summary['behind_backward_s'] * 1e3:.2f} ms behind backward, "
            f"{summary['behind_forward_s'] * 1e3:.2f} ms behind forward; {summary['exposed_s'] * 1e3:.2f} ms exposed"
        )
        self.line(f"parameters           {'equal' if same else 'DIFFERENT'} on all {summary['world_size']} ranks")


def _line(network: Network) -> str:
    """The line through the network's table, in words."""
    return f"{network.a_s * 1e6:.1f} µs a message + {network.b_s_per_byte * 1e9:.3f} ns a byte"
