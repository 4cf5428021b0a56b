"""What a run remembers: losses for the log, times for the plan and the summary, spans for the timeline."""

from __future__ import annotations

from math import isfinite
from statistics import median
from typing import Any

from mgwfbp.arena import Arena
from mgwfbp.comm import World
from mgwfbp.errors import SharedError
from mgwfbp.measure.profiler import IterationTimes
from mgwfbp.measure.timeline import Span, chrome_trace, planned_spans
from mgwfbp.training.iteration import Iteration, clock, measured_spans
from mgwfbp.training.planning import Plan
from mgwfbp.training.report import Reporter
from mgwfbp.training.run_folder import RunFolder


class Record:
    """The iterations of a run on this rank. `folder` is None and `reporter` silent on all ranks but 0.

    Only full batches count for medians: a short last one would spoil them. The timeline shows the first `shown`
    profiled and the first `shown` planned iterations; its time 0 is when this is made. Collective.
    """

    def __init__(self, world: World, arena: Arena, folder: RunFolder | None, reporter: Reporter, shown: int) -> None:
        self.world, self.arena, self.folder, self.reporter, self.shown = world, arena, folder, reporter, shown
        self.train_loss = 0.0  # mean over the last epoch's samples
        self._profiled: list[IterationTimes] = []
        # Only what the summary needs of each iteration: a long run has many.
        self._figures: dict[bool, list[tuple[float, ...]]] = {False: [], True: []}  # planned?
        self._short: list[tuple[float, ...]] = []  # the last short batch, for runs that have nothing else
        self._short_times: list[IterationTimes] = []
        self._spans: list[Span] = []
        self._shown_of = {False: 0, True: 0}
        self._pending: list[tuple[int, Iteration, int]] = []
        self._epoch_loss, self._epoch_samples = 0.0, 0
        world.comm.Barrier()
        self._zero_ns = clock()

    def add(self, number: int, done: Iteration, global_batch: int, full: bool, plan: Plan | None) -> None:
        """Iteration `number`, of `global_batch` samples, is over; it followed `plan`, or was profiled."""
        self._pending.append((number, done, global_batch))
        figures = (done.seconds, done.exposed_s, 1 - done.overlap, done.behind_backward_s, done.behind_forward_s)
        if not full:
            self._short, self._short_times = [figures], [done.times]
            return
        self._figures[plan is not None].append(figures)
        if not plan:
            self._profiled.append(done.times)
        if self._shown_of[plan is not None] < self.shown:
            self._shown_of[plan is not None] += 1
            self._spans += measured_spans(done, self.arena.names, self.arena.layer_nbytes, number + 1)
            if plan:
                self._spans += planned_spans(plan.workload, plan.prediction, done.times.start, done.times.end)

    def epoch_sums(self) -> list[float]:
        """(loss summed over the samples, samples) of this epoch so far, as far as it was logged."""
        return [self._epoch_loss, self._epoch_samples]

    def go_on(self, iteration: int, loss: float, samples: int) -> None:
        """This run was `iteration` iterations old before; `epoch_sums` then."""
        self._epoch_loss, self._epoch_samples = loss, samples

    def planned_again(self) -> None:
        """From here another plan is followed: the summary measures the last one."""
        self._figures[True].clear()

    def profile(self) -> list[IterationTimes]:
        """The times to plan by: the profiled iterations without the first, which touches all memory anew."""
        return self._profiled[1:] or self._profiled or self._short_times

    def flush(self, epoch: int) -> None:
        """Log what is pending. Collective: the losses and right answers of all ranks are added in one message.

        Raises SharedError if a loss is not finite.
        """
        everyone = self.world.sum([value for _, done, _ in self._pending for value in (done.loss, done.correct)])
        lines, samples, right = [], 0, 0.0
        for (number, done, global_batch), loss, correct in zip(
            self._pending, everyone[::2], everyone[1::2], strict=True
        ):
            if done.finite:  # one that was skipped counts nothing
                self._epoch_loss += loss * global_batch
                self._epoch_samples += global_batch
            samples, right = samples + global_batch, right + correct
            line = {"iteration": number + 1, "epoch": epoch + 1, "loss": loss, "train_accuracy": correct / global_batch}
            lines.append({**line, "iteration_s": done.seconds, "exposed_s": done.exposed_s, "overlap": done.overlap})
        self._log(lines)
        # The same on all ranks, since the losses were added.
        pairs = zip(lines, self._pending, strict=True)
        diverged = [line for line, (_, done, _) in pairs if done.finite and not isfinite(line["loss"])]
        if diverged:
            first, value = diverged[0]["iteration"], diverged[0]["loss"]
            raise SharedError(f"the loss of iteration {first} is {value}: training has diverged; try a smaller --lr")
        rate = samples / sum(done.seconds for _, done, _ in self._pending)
        text = f"epoch {epoch + 1}  loss {lines[-1]['loss']:.4f}  accuracy {right / samples:.3f}  {rate:,.0f} images/s"
        self.reporter.advance(self._pending[-1][0] + 1, text)
        self._pending.clear()

    def epoch(self, epoch: int, val_loss: float, accuracy: float) -> None:
        """An epoch is over and validated. Raises SharedError if the validation loss is not finite."""
        self.train_loss, self._epoch_loss, self._epoch_samples = self._epoch_loss / max(1, self._epoch_samples), 0.0, 0
        self._log([{"epoch": epoch + 1, "val_accuracy": accuracy, "val_loss": val_loss}])
        if not isfinite(val_loss):
            raise SharedError(f"the validation loss is {val_loss}: training has diverged; try a smaller --lr")
        self.reporter.line(f"epoch {epoch + 1}: validation accuracy {accuracy:.4f}, loss {val_loss:.4f}")

    def _log(self, lines: list[dict[str, Any]]) -> None:
        with self.world.together():  # a full disk is rank 0's to see and everyone's to know
            if self.folder:
                self.folder.log(lines)

    def timeline(self) -> dict[str, Any] | None:
        """The Chrome trace of all ranks, on rank 0 (None elsewhere). Collective."""
        gathered = self.world.comm.gather((self._spans, self._zero_ns), root=0)
        return chrome_trace([spans for spans, _ in gathered], [zero for _, zero in gathered]) if gathered else None

    def measured(self, global_batch: int) -> dict[str, float]:
        """The summary's measurements: medians over the planned iterations, of the slowest rank. Collective.

        A run too short to follow its plan is measured by its profiled iterations. `images_per_s` is by the mean, not
        the median: it counts the slow iterations too.
        """
        kept = self._figures[True] or self._figures[False] or self._short
        mean = sum(figures[0] for figures in kept) / len(kept)
        middle = [median(values) for values in zip(*kept, strict=True)]
        mean, seconds, exposed, unhidden, backward, forward = self.world.max([mean, *middle])
        return {
            "images_per_s": global_batch / mean,
            "iteration_s": seconds,
            "exposed_s": exposed,
            "overlap": 1 - unhidden,
            "behind_backward_s": backward,
            "behind_forward_s": forward,
        }
