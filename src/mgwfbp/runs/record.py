"""What a run says and leaves behind while it goes on: losses for the log, spans for the timeline, its folder."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from math import isfinite
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from mgwfbp.data import Batch
from mgwfbp.errors import DivergedError
from mgwfbp.runs.folder import RunFolder
from mgwfbp.runs.provenance import provenance
from mgwfbp.runs.report import Reporter
from mgwfbp.runs.timeline import Span, chrome_trace, measured_spans, planned_spans
from mgwfbp.schedule import Plan
from mgwfbp.train.loop import Hook, Summary, Trainer
from mgwfbp.train.planner import Drift
from mgwfbp.train.times import Done


class Record(Hook):
    """Logs every `every` iterations: a line on rank 0, means since the line before; metrics.jsonl in `folder` has all.

    `folder` is a RunFolder on rank 0, or where to make one, or None for no files. A run that goes on from a
    checkpoint, or after an earlier `fit`, goes on in its folder. The timeline shows the first `shown` profiled and the
    first `shown` planned iterations; its time 0 is the start of the run.
    """

    def __init__(self, folder: RunFolder | str | Path | None = None, every: int = 20, shown: int = 20) -> None:
        self.folder = folder if isinstance(folder, RunFolder) else None
        self.where = folder if isinstance(folder, str | Path) else None  # what is to be opened
        self.every, self.shown = every, shown
        self.config: dict[str, Any] | None = None  # for config.json; on all ranks, or on none

    def open(self, trainer: Trainer) -> AbstractContextManager[Any]:
        """Say what begins. Collective."""
        self.trainer, self.world = trainer, trainer.world
        self._spans: list[Span] = []
        self._shown_of = {False: 0, True: 0}
        self._pending: list[tuple[Batch, Done]] = []
        self._since_line = [0.0, 0.0, 0.0, 0.0]  # loss over samples, right answers, samples, seconds
        self._drawn = False
        self._epoch_loss, self._begun = 0.0, False
        self.reporter = Reporter(trainer.total, self.world.rank > 0, self.world.size)
        trainer.say = self.reporter.line
        about = self.config["used"] if self.config else provenance(self.world)
        self.reporter.start(trainer, about, self.config)
        self.world.comm.Barrier()
        self._zero_ns = perf_counter_ns()
        return self.reporter

    def before(self, batch: Batch) -> None:
        """Begin to write the folder, once nothing can be refused any more. Collective. Raises SharedError."""
        if self._begun:
            return
        with self.world.together():
            if self.where is not None and self.world.rank == 0:
                self.folder = RunFolder(str(self.where), self.trainer.net.name, False, self.trainer.done or None)
            if self.folder:
                self.folder.begin(self.config)
        self._begun = True

    def after(self, batch: Batch, done: Done) -> None:
        """Remember the iteration; log what is pending, if it is time."""
        self._pending.append((batch, done))
        plan = self.trainer.planner.plan
        planned = plan is not None
        if batch.size == self.trainer.global_batch and self._shown_of[planned] < self.shown:
            self._shown_of[planned] += 1
            arena = self.trainer.net.arena
            self._spans += measured_spans(done, arena.names, arena.layer_nbytes, batch.number + 1)
            if plan is not None:
                self._spans += planned_spans(plan.workload, plan.prediction, done.times.start, done.times.end)
                if self._shown_of[True] == self.shown:
                    self.draw()
        if batch.ends_epoch or (batch.number + 1) % self.every == 0:
            self.flush(say=batch.last or (batch.number + 1) % self.every == 0)

    def planned(self, plan: Plan, drift: Drift | None) -> None:
        """Say what is followed from here on, and why; the folder has it from now on. Collective."""
        if drift:
            self.reporter.drift(drift)
        self.reporter.plan(plan)
        with self.world.together():
            if self.folder:
                self.folder.planned(plan)

    def draw(self) -> None:
        """Write timeline.json, as far as it goes. Collective."""
        gathered = self.world.comm.gather((self._spans, self._zero_ns), root=0)
        with self.world.together():
            if gathered and self.folder:
                trace = chrome_trace([spans for spans, _ in gathered], [zero for _, zero in gathered])
                self.folder.write("timeline.json", trace)
        self._drawn = True

    def flush(self, *, say: bool = False) -> None:
        """Log what is pending, and `say` how it goes since the last line. Collective: one message adds all ranks'.

        Raises DivergedError if a loss, or a sum of gradients, is not finite.
        """
        if not self._pending:
            return
        everyone = self.world.sum([value for _, done in self._pending for value in (done.loss, done.right)])
        trainer, lines, since, now = self.trainer, [], self._since_line, time.time()
        sums = trainer.sums
        for (batch, done), loss, correct in zip(self._pending, everyone[::2], everyone[1::2], strict=True):
            if done.finite:  # one that was skipped counts nothing
                sums[0] += loss * batch.size
                sums[1] += batch.size
            more = (loss * batch.size, correct, batch.size, done.seconds)
            since[:] = [total + value for total, value in zip(since, more, strict=True)]
            line = {"iteration": batch.number + 1, "epoch": batch.epoch + 1, "loss": loss}
            rate = trainer.base_lr * trainer.factor(batch.number, trainer.total)
            line |= {"train_accuracy": correct / batch.size, "lr": rate}
            line |= {"iteration_s": done.seconds, "exposed_s": done.exposed_s, "overlap": done.overlap, "time": now}
            lines.append(line)
        self.log(lines)
        # The same on all ranks, since the losses were added.
        pairs = zip(lines, self._pending, strict=True)
        diverged = [line for line, (_, done) in pairs if done.finite and not isfinite(line["loss"])]
        if diverged:
            first, value = diverged[0]["iteration"], diverged[0]["loss"]
            raise DivergedError(f"the loss of iteration {first} is {value}: training has diverged; try a smaller --lr")
        last = self._pending[-1][0]
        if say:
            loss, right, samples, seconds = since
            text = f"epoch {last.epoch + 1}  loss {loss / samples:.4f}  accuracy {right / samples:.3f}"
            self.reporter.advance(last.number + 1, f"{text}  {samples / seconds:,.0f} images/s")
            since[:] = [0.0] * 4
        self._pending.clear()
        self.trainer.exchange.check(last.number + 1)
        if last.ends_epoch:
            self._epoch_loss, sums[:] = sums[0] / max(1, sums[1]), [0.0, 0]

    def log(self, lines: list[dict[str, Any]]) -> None:
        """Append `lines` to metrics.jsonl. Collective: a full disk is rank 0's to see and everyone's to know."""
        with self.world.together():
            if self.folder:
                self.folder.log(lines)

    def finished(self, summary: Summary) -> None:
        """Write the run folder's last files, and say how it was. Collective."""
        summary["train_loss"] = self._epoch_loss
        if not self._drawn:
            self.draw()
        plan = self.trainer.planner.plan
        with self.world.together():
            if self.folder and plan is not None:
                self.folder.finish(plan, summary)
        self.reporter.end(summary, self.folder.path if self.folder else None)


class Validate(Hook):
    """Validates at the end of each epoch. Raises DivergedError if the validation loss is not finite."""

    settled = True

    def __init__(self, record: Record | None = None) -> None:
        self.record = record

    def due(self, batch: Batch) -> bool:
        """At the end of an epoch."""
        return batch.ends_epoch

    def after(self, batch: Batch, done: Done) -> None:
        """Log and say loss and accuracy. Collective."""
        loss, accuracy = self.trainer.evaluate()
        if self.record is not None:
            line = {"epoch": batch.epoch + 1, "after": batch.number + 1, "val_accuracy": accuracy, "val_loss": loss}
            self.record.log([line])
        if not isfinite(loss):
            raise DivergedError(f"the validation loss is {loss}: training has diverged; try a smaller --lr")
        judged = self.trainer.data.validates
        self.trainer.say(f"epoch {batch.epoch + 1}: {judged} accuracy {accuracy:.4f}, loss {loss:.4f}")
