"""What an iteration trains on: this rank's images, augmented, normalised, of the network's dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgwfbp.data import Data, Share, augment
from mgwfbp.layers import Step
from mgwfbp.training.fault import Fault

Batch = Callable[[Share, Step], tuple[np.ndarray, np.ndarray]]


def batches(data: Data, dtype: Any, shift: int = 0, flip: bool = False) -> Batch:
    """A function (share, step) → (images (batch, height, width, channels) of `dtype`, labels (batch,))."""

    def batch(share: Share, step: Step) -> tuple[np.ndarray, np.ndarray]:
        images, labels = data.train_batch(share, step.seed, step.iteration)
        if shift or flip:
            images = augment(images, share, shift=shift, flip=flip, seed=step.seed, iteration=step.iteration)
        return data.normalised(images, dtype), labels

    return batch


def with_fault(batch: Batch, fault: Fault, rank: int) -> Batch:
    """`batch`, but `fault` strikes when its rank takes the batch of its iteration."""

    def struck(share: Share, step: Step) -> tuple[np.ndarray, np.ndarray]:
        images, labels = batch(share, step)
        return fault.strike(rank, step.iteration, images), labels

    return struck
