"""From the times at which gradients were announced to a workload: robust over iterations, the slowest rank decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from mgwfbp.arena import Arena
from mgwfbp.schedule import LayerProfile, Workload


class IterationTimes(NamedTuple):
    """When things happened in one iteration, in `time.perf_counter_ns()`.

    `start` before the batch is taken, `forward_end`, `ready[i]` when layer i's gradient was announced,
    `backward_end`, `end` after the last update; `update_ns` is the sum of the update times.
    """

    start: int
    forward_end: int
    ready: Sequence[int]
    backward_end: int
    end: int
    update_ns: int


def workload_from_times(
    name: str,
    batch_size: int,
    arena: Arena,
    times: Sequence[IterationTimes],
    max_over_ranks: Callable[[list[float]], list[float]] = list,
    source: str = "",
) -> Workload:
    """The workload of the measured iterations: the median over `times` of each ready time, the largest over the ranks.

    A message can start when its last rank is ready, so the largest *ready times* decide; the largest times of single
    layers, added up, would be more than any rank takes. What backward does after the last announcement is part of the
    last layer. `max_over_ranks` is collective where there are several ranks.
    """
    rows = [
        [t.forward_end - t.start, *(ready - t.forward_end for ready in (*t.ready[:-1], t.backward_end))] for t in times
    ]
    forward, *ready = max_over_ranks((np.median(rows, axis=0) * 1e-9).tolist())
    backward = np.diff(ready, prepend=0.0).tolist()
    layers = zip(arena.names, arena.layer_parameters, arena.layer_nbytes, backward, strict=True)
    return Workload(name, batch_size, forward, tuple(LayerProfile(*layer) for layer in layers), source)
