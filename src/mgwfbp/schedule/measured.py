"""From the times at which gradients were announced to a workload: robust over iterations, the slowest rank decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from mgwfbp.schedule.workload import LayerProfile, Workload

Interval = tuple[int, int]  # start and end, in ns of `time.perf_counter_ns()`


class IterationTimes(NamedTuple):
    """When things happened in one iteration, in `time.perf_counter_ns()`.

    `start` before the batch is taken, `forward_end`, `ready[i]` when layer i's gradient was announced,
    `backward_end`, `end` after the last update; `update_ns` is the sum of the update times. `forward` has for each
    layer that learns, in the order of forward, when it began to wait for its parameters and when it went on.
    """

    start: int
    forward_end: int
    ready: Sequence[int]
    backward_end: int
    end: int
    update_ns: int
    forward: Sequence[Interval] = ()

    @property
    def waited_ns(self) -> int:
        """The waits of forward, and the updates made in them."""
        return sum(after - before for before, after in self.forward)

    def forward_left_ns(self) -> list[int]:
        """For each layer, gradient-ready order, the time from its start to the end of forward, without the waits."""
        left, total, end = [], 0, self.forward_end
        for before, after in reversed(self.forward):
            total += end - after
            left.append(total)
            end = before
        return left


def workload_from_times(
    name: str,
    batch_size: int,
    layers: Sequence[tuple[str, int, int]],
    times: Sequence[IterationTimes],
    max_over_ranks: Callable[[list[float]], list[float]] = list,
    source: str = "",
) -> Workload:
    """The workload of the measured iterations: the median over `times` of each ready time, the largest over the ranks.

    A message can start when its last rank is ready, so the largest *ready times* decide; the largest times of single
    layers, added up, would be more than any rank takes. What backward does after the last announcement is part of the
    last layer. In the same way the time from a layer's forward to the end of forward is what counts there.
    `layers` are (name, parameters, bytes) in gradient-ready order. `max_over_ranks` is collective with several ranks.
    """
    measured = [
        [
            t.forward_end - t.start - t.waited_ns,
            *t.forward_left_ns(),
            *(ready - t.forward_end for ready in (*t.ready[:-1], t.backward_end)),
        ]
        for t in times
    ]
    forward, *both = max_over_ranks((np.median(measured, axis=0) * 1e-9).tolist())
    count = len(layers)
    left, ready = both[:-count], both[-count:]
    # A rank without samples in some iteration has no forward: then the layers share the whole by their backward times.
    forwards = np.diff(left, prepend=0.0).tolist() if len(left) == count else [None] * count
    backward = np.diff(ready, prepend=0.0).tolist()
    rows = zip(layers, backward, forwards, strict=True)
    profiles = (LayerProfile(*row, one, other) for row, one, other in rows)
    return Workload(name, batch_size, forward, tuple(profiles), source)


def shared_ns(spans: Sequence[Interval], others: Sequence[Interval]) -> int:
    """Nanoseconds that lie in one of `spans` and in one of `others`, each in order and without overlaps of its own."""
    total, place = 0, 0
    for start, end in spans:
        while place < len(others) and others[place][1] <= start:
            place += 1
        for first, last in others[place:]:
            if first >= end:
                break
            total += min(end, last) - max(start, first)
    return total


class Sample:
    """Rows of numbers, of which at most MOST are kept, evenly spread over all: a run may have millions of iterations.

    `mean` is the exact mean of all rows' first number.
    """

    MOST = 4096

    def __init__(self) -> None:
        self.rows: list[tuple[float, ...]] = []
        self._count, self._total, self._every = 0, 0.0, 1

    def add(self, row: tuple[float, ...]) -> None:
        """Count `row`, and keep it if it is its turn."""
        if self._count % self._every == 0:
            self.rows.append(row)
        self._count, self._total = self._count + 1, self._total + row[0]
        if len(self.rows) > self.MOST:
            self.rows, self._every = self.rows[::2], self._every * 2

    @property
    def mean(self) -> float:
        """The mean of the first numbers."""
        return self._total / self._count


class Figures:
    """Medians for a run's summary. Only full batches count, a short last one would spoil them."""

    def __init__(self) -> None:
        self._figures = {False: Sample(), True: Sample()}  # planned?
        self._short = Sample()  # the last short batch, for runs that have nothing else

    def add(self, figures: tuple[float, ...], *, full: bool, planned: bool) -> None:
        """An iteration is over, of a full batch or not, by a plan or not; `figures` are `Done.figures`."""
        if not full:
            self._short = Sample()
        (self._figures[planned] if full else self._short).add(figures)

    def planned_again(self) -> None:
        """From here another plan is followed: the summary measures the last one."""
        self._figures[True] = Sample()

    def measured(self, max_over_ranks: Callable[[list[float]], list[float]], global_batch: int) -> dict[str, float]:
        """The summary's measurements: medians over the planned iterations, of the slowest rank. Collective.

        A run too short to follow its plan is measured by its profiled iterations. `images_per_s` is by the mean, not
        the median: it counts the slow iterations too.
        """
        kept = next(each for each in (self._figures[True], self._figures[False], self._short) if each.rows)
        middle = [median(values) for values in zip(*kept.rows, strict=True)]
        mean, seconds, exposed, unhidden, backward, forward = max_over_ranks([kept.mean, *middle])
        return {
            "images_per_s": global_batch / mean,
            "iteration_s": seconds,
            "exposed_s": exposed,
            "overlap": 1 - unhidden,
            "behind_backward_s": backward,
            "behind_forward_s": forward,
        }
