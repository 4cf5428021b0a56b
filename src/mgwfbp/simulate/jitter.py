"""Stragglers: what happens to a plan when every rank's layers take a little longer or shorter in every iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mgwfbp.errors import UserError
from mgwfbp.schedule import Cost, Schedule, Workload
from mgwfbp.schedule.cost import costs

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
    of their noisy times. The schedules were planned without the noise, and all meet the same noise.
    """
    ready = _ready_times(workload, ranks, jitter)  # (trials, 1 + layers), from the start of the iteration
    prefix = np.array(workload.prefix_nbytes(), float)
    results = []
    for schedule in schedules:
        last = np.array([bucket.last for bucket in schedule.buckets])
        first = np.array([bucket.first for bucket in schedule.buckets])
        times = costs(cost, prefix[last + 1] - prefix[first])
        channel = np.zeros(len(ready))
        for bucket_last, seconds in zip(last, times, strict=True):
            channel = np.maximum(channel, ready[:, bucket_last]) + seconds
        iteration = np.maximum(channel, ready[:, -1])
        low, high = np.quantile(iteration, (0.025, 0.975))
        results.append((float(iteration.mean()), float(low), float(high)))
    return results


def _ready_times(workload: Workload, ranks: int, jitter: Jitter) -> np.ndarray:
    """(trials, layers) float64: when each layer is ready on its slowest rank, forward included."""
    times = np.array([workload.forward_s, *(layer.backward_s for layer in workload.layers)], np.float32)
    layers = len(times)
    rng = np.random.default_rng([jitter.seed, ranks])
    slowest = np.empty((jitter.trials, layers - 1))
    chunk = max(1, CHUNK // (ranks * layers))
    for start in range(0, jitter.trials, chunk):
        many = min(chunk, jitter.trials - start)
        noise = rng.standard_normal((many, ranks, layers), np.float32)
        noise *= np.float32(jitter.sigma)
        noise += 1
        np.maximum(noise, 0, out=noise)
        noise *= times
        slowest[start : start + many] = noise.cumsum(axis=2, out=noise).max(axis=1)[:, 1:]
    return slowest
