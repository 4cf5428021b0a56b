"""Random shifts and flips of training images, by the seed, the iteration and the sample's place in the global batch."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mgwfbp.data.shares import Share

AUGMENTATION = 3  # keeps this use of the seed apart from the order of samples (2)


def draws(share: Share, seed: int, iteration: int) -> np.ndarray:
    """Three numbers in [0, 1) for each row of `share`: how far down, how far right, whether mirrored.

    They are drawn for the whole global batch and this rank's rows taken, so they do not depend on the number of ranks.
    """
    every = np.random.default_rng([seed, AUGMENTATION, iteration]).random((share.global_batch, 3))
    return every[share.first_row : share.first_row + len(share.indices)]


def augment(images: np.ndarray, share: Share, *, shift: int, flip: bool, seed: int, iteration: int) -> np.ndarray:
    """`images` (batch, height, width, channels), each shifted by up to `shift` pixels both ways and mirrored at random.

    What a shift uncovers is 0 (it is the usual random crop of the zero-padded image). uint8 in, uint8 out.
    """
    drawn = draws(share, seed, iteration)
    if shift:
        padded = np.pad(images, ((0, 0), (shift, shift), (shift, shift), (0, 0)))
        windows = sliding_window_view(padded, images.shape[1:3], axis=(1, 2))
        down, right = (drawn[:, :2] * (2 * shift + 1)).astype(int).T
        images = np.moveaxis(windows[np.arange(len(images)), down, right], 1, 3)
    if flip:
        mirrored = drawn[:, 2] < 0.5
        images = np.where(mirrored[:, None, None, None], images[:, :, ::-1], images)
    return images
