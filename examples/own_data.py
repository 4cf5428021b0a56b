"""Data of one's own: arrays in memory, in a file, or under a name.     mpirun -n 2 python own_data.py

Or from the command line: mgwfbp train mlp --plugin own_data.py --data stripes:16 --batch-size 16
                          mgwfbp train mlp --data arrays:stripes.npz        (np.savez(…, images=…, labels=…))
"""

import numpy as np

import mgwfbp as mg


def stripes(size, count=1000, seed=0):
    """Images uint8 (count, size, size, 1) with stripes across or down, and which of the two."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    across = np.broadcast_to(np.arange(size)[:, None] % 4 < 2, (size, size))
    images = np.where(labels[:, None, None] == 0, across, across.T) * 100 + rng.integers(0, 100, (count, size, size))
    return images.astype(np.uint8)[..., None], labels


@mg.dataset("stripes")
def named(rest, source):
    """--data stripes:SIZE"""
    return mg.Dataset.from_arrays(f"stripes:{rest}", *stripes(int(rest or 16), seed=source.seed))


if __name__ == "__main__":
    data = mg.load("stripes:12", seed=1)  # the same on all ranks: each takes its part of every batch
    trainer = mg.Trainer(mg.models.mlp(data.shape, data.classes), data, mg.SGD(lr=0.02, momentum=0.9), batch_size=16)
    summary = trainer.fit(epochs=2)
    if trainer.world.rank == 0:
        print(summary)
