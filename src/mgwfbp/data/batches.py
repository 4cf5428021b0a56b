"""What an iteration trains on: one global batch after another, and of each the part that is this rank's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from mgwfbp.data.augment import augment
from mgwfbp.data.data import Data
from mgwfbp.data.shares import Share, shares
from mgwfbp.net.layers import Step

AHEAD = 2  # batches that are prepared while one is trained on


class Batch(NamedTuple):
    """A global batch, as this rank has it. `load()` gives its part, and the same again whenever it is asked.

    That is (images (batch, height, width, channels), augmented, normalised and of the net's dtype, labels (batch,));
    there may be none. `number` counts the run's iterations, `epoch` its epochs, from 0; `step` is for `Net.forward`.
    `ends_epoch` says whether it is the epoch's last, or the run's; `last` whether it is the run's.
    """

    number: int
    epoch: int
    share: Share
    step: Step
    ends_epoch: bool
    last: bool
    load: Callable[[], tuple[np.ndarray, np.ndarray]]

    @property
    def size(self) -> int:
        """Samples of the global batch, on all ranks together: what the loss is a mean over."""
        return self.share.global_batch


def batches(
    data: Data,
    global_batch: int,
    *,
    epochs: int,
    iterations: int | None = None,
    rank: int = 0,
    ranks: int = 1,
    seed: int = 1,
    shift: int = 0,
    flip: bool = False,
    dtype: Any = np.float32,
    first: int = 0,
    xp: Any = np,
) -> Iterator[Batch]:
    """The batches of a run of `epochs`, or of `iterations` if those are over sooner, from iteration `first` on.

    In each epoch every sample comes once; the order depends on `seed` and the epoch only, the last batch may be short.
    `rank` of `ranks` gets its part of each. `shift` and `flip` augment the images. Batches are prepared AHEAD of time;
    their images become arrays of the module `xp` as uint8, a quarter of what is copied to a GPU otherwise.
    """
    samples, total = len(data.train_labels), total_iterations(len(data.train_labels), global_batch, epochs, iterations)

    def loader(share: Share, step: Step) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
        def load() -> tuple[np.ndarray, np.ndarray]:
            images, labels = data.train_batch(share, step.seed, step.iteration)
            if shift or flip:
                images = augment(images, share, shift=shift, flip=flip, seed=step.seed, iteration=step.iteration)
            return data.normalised(xp.asarray(images), dtype), labels

        return load

    def all_batches() -> Iterator[Batch]:
        number = 0
        for epoch in range(epochs):
            left = ceil(samples / global_batch)
            for share in shares(samples, global_batch, rank, ranks, seed=seed, epoch=epoch):
                if number == total:
                    return
                step, left, number = Step(iteration=number, first_row=share.first_row, seed=seed), left - 1, number + 1
                last = number == total
                yield Batch(number - 1, epoch, share, step, last or left == 0, last, loader(share, step))

    waiting: deque[Batch] = deque()
    for batch in islice(all_batches(), first, None):
        data.expect(batch.share, seed, batch.number)
        waiting.append(batch)
        if len(waiting) > AHEAD:
            yield waiting.popleft()
    yield from waiting


def total_iterations(samples: int, global_batch: int, epochs: int, iterations: int | None = None) -> int:
    """Iterations of a run of `epochs` over `samples`, or `iterations` if those are fewer."""
    total = epochs * ceil(samples / global_batch)
    return total if iterations is None else min(total, iterations)
