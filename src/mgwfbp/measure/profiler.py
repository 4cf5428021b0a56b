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
    """The workload of the measured iterations: the median over `times` of each layer, then the largest over the ranks.

    All-reduces end together, so the slowest rank's layer decides when a message can be sent. What backward does after
    the last announcement is part of the last layer. `max_over_ranks` is collective where there are several ranks.
    """
    rows = []
    for t in times:
        ready = np.array([t.forward_end, *t.ready], float)
        ready[-1] = t.backward_end
        rows.append([t.forward_end - t.start, *np.diff(ready)])
    forward, *backward = max_over_ranks((np.median(rows, axis=0) * 1e-9).tolist())
    layers = zip(arena.names, arena.layer_parameters, arena.layer_nbytes, backward, strict=True)
    return Workload(name, batch_size, forward, tuple(LayerProfile(*layer) for layer in layers), source)
