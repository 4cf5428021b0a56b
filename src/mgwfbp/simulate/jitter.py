"""Stragglers: what happens to a plan when every rank's layers take a little longer or shorter in every iteration."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mgwfbp.errors import UserError
from mgwfbp.schedule import SHARDED, Cost, Schedule, Workload
from mgwfbp.schedule.cost import costs, halves

CHUNK = 2_000_000  # random numbers at a time: 8 MB of float32, which stays near the caches


class Jitter(NamedTuple):
    """Each time is multiplied by max(0, 1 + sigma·N(0, 1)), drawn anew for every layer, rank and trial."""

    sigma: float
    trials: int
    seed: int = 0

    @classmethod
    def checked(cls, sigma: float, trials: int, seed: int) -> Jitter:
        """The jitter of the command line. Raises UserError unless sigma is from 0 to 10."""
        if not 0 <= sigma <= 10:
            raise UserError(f"--jitter {sigma}: must be a share of the layer times, such as 0.1, from 0 to 10")
        return cls(sigma, trials, seed)


def jittered(
    workload: Workload, cost: Cost, schedules: Sequence[Schedule], ranks: int, jitter: Jitter
) -> list[tuple[float, float, float]]:
    """For each schedule: (mean, 2.5 % quantile, 97.5 % quantile) of its iteration time in seconds.

    An all-reduce starts when its last rank is ready, so a bucket's ready time is the largest over the ranks of the sums
    of their noisy times. The schedules were planned without the noise, and all meet the same noise. Where messages run
    into the next forward, backward begins on all ranks together, and the iteration lasts until the last rank ends it.
    """
    times = _slowest(workload, ranks, jitter)
    results = []
    for schedule in schedules:
        iteration = _into_forward(workload, cost, schedule, times) if schedule.runs_into_forward else None
        if iteration is None:
            free = np.zeros(jitter.trials)
            for bucket, seconds in zip(schedule.buckets, _seconds(workload, cost, schedule), strict=True):
                free = np.maximum(free, times.from_start[:, bucket.last]) + seconds
            iteration = np.maximum(free, times.from_start[:, -1])
        low, high = np.quantile(iteration, (0.025, 0.975))
        results.append((float(iteration.mean()), float(low), float(high)))
    return results


def _into_forward(workload: Workload, cost: Cost, schedule: Schedule, times: Times) -> np.ndarray:
    """Seconds of each trial, by the definition in schedule/next_forward.py."""
    ready, left, worst = times.ready, times.left, times.from_start[:, -1]
    sharded = schedule.mode == SHARDED
    scatter, gather = halves(cost) if sharded else (cost, cost)
    free = np.zeros(len(ready))
    for bucket, seconds in zip(schedule.buckets, _seconds(workload, scatter, schedule), strict=True):
        free = np.maximum(free, ready[:, bucket.last]) + seconds
        if not sharded:
            worst = np.maximum(worst, free + left[:, bucket.last])
    if sharded:
        free = np.maximum(free, ready[:, -1])
        sent = list(zip(schedule.buckets, _seconds(workload, gather, schedule), strict=True))
        for bucket, seconds in reversed(sent):
            free = free + seconds
            worst = np.maximum(worst, free + left[:, bucket.last])
    return worst


def _seconds(workload: Workload, cost: Cost, schedule: Schedule) -> np.ndarray:
    prefix = np.array(workload.prefix_nbytes(), float)
    return costs(cost, [prefix[bucket.last + 1] - prefix[bucket.first] for bucket in schedule.buckets])


class Times(NamedTuple):
    """Seconds (trials, layers), each on the rank where it is largest, all from one draw a trial, rank and layer.

    `from_start` is the end of a layer's backward from the start of forward, `ready` from the start of backward, `left`
    the forward time of the layers 0 to this one.
    """

    from_start: np.ndarray
    ready: np.ndarray
    left: np.ndarray


def _slowest(workload: Workload, ranks: int, jitter: Jitter) -> Times:
    """Noisy forward and backward times of each layer and rank, added up, and of these the largest over the ranks."""
    left = workload.forward_left_s()
    layers = len(left)
    forward = [after - before for before, after in pairwise([0.0, *left])]
    backward = [layer.backward_s for layer in workload.layers]
    seconds = np.array([workload.forward_s - left[-1], *forward, *backward], np.float32)
    rng = np.random.default_rng([jitter.seed, ranks])
    times = Times(*(np.empty((jitter.trials, layers)) for _ in Times._fields))
    chunk = max(1, CHUNK // (ranks * len(seconds)))
    for start in range(0, jitter.trials, chunk):
        rows = slice(start, min(start + chunk, jitter.trials))
        noise = rng.standard_normal((rows.stop - start, ranks, len(seconds)), np.float32)
        noise *= np.float32(jitter.sigma)
        noise += 1
        np.maximum(noise, 0, out=noise)
        noise *= seconds
        ends, before = noise[..., layers + 1 :].cumsum(axis=2), noise[..., 1 : layers + 1].cumsum(axis=2)
        times.ready[rows], times.left[rows] = ends.max(axis=1), before.max(axis=1)
        times.from_start[rows] = (noise[..., :1] + before[..., -1:] + ends).max(axis=1)
    return times
