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
    backward = [layer.backward_s for layer in workload.layers]
    ready = _slowest([workload.forward_s, *backward], ranks, jitter, 0)[:, 1:]  # from the start of the iteration
    both = {}
    if any(schedule.runs_into_forward for schedule in schedules):
        left = workload.forward_left_s()
        lead = workload.forward_s - left[-1]
        both["ready"] = _slowest(backward, ranks, jitter, 1)
        both["left"] = _slowest([after - before for before, after in pairwise([0.0, *left])], ranks, jitter, 2)
        both["alone"] = both["ready"][:, -1] + lead + both["left"][:, -1]
    results = []
    for schedule in schedules:
        iteration = _into_forward(workload, cost, schedule, both) if schedule.runs_into_forward else None
        if iteration is None:
            free = np.zeros(len(ready))
            for bucket, seconds in zip(schedule.buckets, _seconds(workload, cost, schedule), strict=True):
                free = np.maximum(free, ready[:, bucket.last]) + seconds
            iteration = np.maximum(free, ready[:, -1])
        low, high = np.quantile(iteration, (0.025, 0.975))
        results.append((float(iteration.mean()), float(low), float(high)))
    return results


def _into_forward(workload: Workload, cost: Cost, schedule: Schedule, times: dict[str, np.ndarray]) -> np.ndarray:
    """Seconds of each trial, by the definition in schedule/next_forward.py."""
    ready, left, worst = times["ready"], times["left"], times["alone"]
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


def _slowest(seconds: Sequence[float], ranks: int, jitter: Jitter, stream: int) -> np.ndarray:
    """(trials, layers) float64: the sums of the first noisy `seconds`, on the rank where they are largest."""
    times = np.array(seconds, np.float32)
    layers = len(times)
    rng = np.random.default_rng([jitter.seed, ranks, stream] if stream else [jitter.seed, ranks])
    slowest = np.empty((jitter.trials, layers))
    chunk = max(1, CHUNK // (ranks * layers))
    for start in range(0, jitter.trials, chunk):
        many = min(chunk, jitter.trials - start)
        noise = rng.standard_normal((many, ranks, layers), np.float32)
        noise *= np.float32(jitter.sigma)
        noise += 1
        np.maximum(noise, 0, out=noise)
        noise *= times
        slowest[start : start + many] = noise.cumsum(axis=2, out=noise).max(axis=1)
    return slowest
