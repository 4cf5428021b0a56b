"""Which samples a rank takes in which iteration: a function of the seed and the global batch, not of the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

ORDER = 2  # keeps this use of the seed apart from the weights' (1)


class Share(NamedTuple):
    """A rank's part of one global batch: sample numbers, the place of the first in the global batch, and its size."""

    indices: np.ndarray
    first_row: int
    global_batch: int


def shares(samples: int, global_batch: int, rank: int, size: int, *, seed: int, epoch: int) -> Iterator[Share]:
    """This rank's part of every global batch of one epoch, each sample of the `samples` once.

    The epoch's permutation depends on (seed, epoch); global batch k is its elements k·B to (k+1)·B, the last one may
    be shorter; ranks take contiguous parts whose lengths differ by one at most (a part can be empty).
    """
    order = np.random.default_rng([seed, ORDER, epoch]).permutation(samples)
    for start in range(0, samples, global_batch):
        batch = order[start : start + global_batch]
        part = slice_of_rank(len(batch), rank, size)
        yield Share(batch[part], part.start, len(batch))


def slice_of_rank(samples: int, rank: int, size: int) -> slice:
    """The contiguous part of `samples` things that `rank` of `size` takes; together the parts cover each thing once."""
    return slice(samples * rank // size, samples * (rank + 1) // size)
