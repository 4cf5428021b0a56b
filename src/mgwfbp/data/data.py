"""What a data set is, and how one is found by its name. Yours is one decorated function, or arrays in a file:

@dataset("mine")
def mine(rest, source):                      # --data mine:rest
    return Dataset.from_arrays("mine", images, labels)

--data arrays:FILE.npz                       # images, labels; val_images and val_labels, if it has them
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from mgwfbp.data.inputs import Inputs
from mgwfbp.data.shares import Share
from mgwfbp.errors import UserError, check_free, unknown_name


class Data(Protocol):
    """Images with labels, in two parts, to train on and to validate."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def train_labels(self) -> np.ndarray:
        """Integers (samples,) below `classes`."""

    @property
    def val_labels(self) -> np.ndarray:
        """Integers (samples,) below `classes`."""

    @property
    def classes(self) -> int:
        """How many kinds of images there are."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(height, width, channels) of an image."""

    @property
    def inputs(self) -> Inputs:
        """How images become what a net sees, and the names of the classes."""

    @property
    def validates(self) -> str:
        """On what: "validation", or "training" where there is nothing else."""

    @property
    def fingerprint(self) -> str:
        """Which files these are, where that is not seen otherwise: the same text on all ranks."""

    def expect(self, share: Share, seed: int, iteration: int) -> None:
        """`train_batch` will be called with these arguments soon."""

    def train_batch(self, share: Share, seed: int, iteration: int) -> tuple[np.ndarray, np.ndarray]:
        """(images uint8 (batch, *shape), labels) of the rank's share; the same whenever it is asked for."""

    def val_batch(self, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """The validation images in `part`, and their labels."""

    def normalised(self, images: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
        """`images` (uint8) as `dtype`, less the mean and over the standard deviation of each channel."""

    def close(self) -> None:
        """Stop what was started."""


class Normalised:
    """What is common to data sets of images: `inputs` normalises a batch."""

    inputs: Inputs
    validates = "validation"

    def normalised(self, images: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
        """`images` (uint8) as `dtype`, less the mean and over the standard deviation of each channel."""
        return self.inputs.normalised(images, dtype)


@dataclass(frozen=True, repr=False)
class Dataset(Normalised):
    """Images and labels in memory, split once and for all; `from_arrays` makes one of arrays.

    `train_images` and `val_images` are uint8 (samples, height, width, channels); `*_labels` integers (samples,) below
    `classes`. The mean and deviation of `inputs` are those of the training part.
    """

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    val_images: np.ndarray
    val_labels: np.ndarray
    classes: int
    inputs: Inputs

    @classmethod
    def from_arrays(
        cls,
        name: str,
        images: np.ndarray,
        labels: np.ndarray,
        val_images: np.ndarray | None = None,
        val_labels: np.ndarray | None = None,
        *,
        classes: int | None = None,
        class_names: Sequence[str] = (),
    ) -> Dataset:
        """The data set of `images` uint8 (samples, height, width, channels) and integer `labels` (samples,).

        Images without channels (samples, height, width) have one. What to validate on is every fifth sample, unless it
        is given. `classes` is the number of `class_names`, else the largest label plus one. Raises UserError for what
        does not fit together.
        """
        if (val_images is None) != (val_labels is None):
            raise UserError(f"data set {name}: give both val_images and val_labels, or neither")
        images, labels = _checked(name, images, labels)
        if val_images is None or val_labels is None:
            if len(images) < 5:
                raise UserError(
                    f"data set {name}: {len(images)} samples are too few to keep every fifth to validate on"
                )
            fifth = np.arange(len(images)) % 5 == 4
            images, labels, val_images, val_labels = images[~fifth], labels[~fifth], images[fifth], labels[fifth]
        else:
            val_images, val_labels = _checked(name, val_images, val_labels)
        if classes is None:
            classes = len(class_names) or int(max(labels.max(initial=0), val_labels.max(initial=0))) + 1
        return cls.of_parts(name, (images, labels), (val_images, val_labels), classes, class_names)

    @classmethod
    def of_parts(
        cls,
        name: str,
        train: tuple[np.ndarray, np.ndarray],
        val: tuple[np.ndarray, np.ndarray],
        classes: int,
        class_names: Sequence[str] = (),
        border: tuple[int, int] = (0, 0),
    ) -> Dataset:
        """The data set of the parts (images, labels), with the mean and deviation of `train`. Raises UserError.

        The images have `border` rows and columns of zeros (before, after) around them; classes without names have
        numbers.
        """
        names = tuple(class_names) or tuple(map(str, range(classes)))
        if len(names) != classes:
            raise UserError(f"data set {name}: {len(names)} names of classes, but {classes} classes")
        if train[0].shape[1:] != val[0].shape[1:] or min(train[0].shape[1:]) < 1:
            raise UserError(
                f"data set {name}: images to train are {train[0].shape[1:]}, to validate {val[0].shape[1:]}"
            )
        for images, labels in (train, val):
            if len(images) != len(labels) or not len(labels):
                raise UserError(f"data set {name}: {len(images)} images but {len(labels)} labels")
            if labels.min() < 0 or labels.max() >= classes:
                raise UserError(
                    f"data set {name}: labels must be 0..{classes - 1}, found {labels.min()}..{labels.max()}"
                )
        # Sums of bytes are exact in int64, so every rank gets the same mean to the last bit.
        pixels = train[0].reshape(-1, train[0].shape[-1])
        mean = pixels.sum(axis=0, dtype=np.int64) / len(pixels)
        counts = [np.bincount(channel, minlength=256) @ np.arange(256) ** 2 for channel in pixels.T]
        std = np.sqrt(np.maximum(np.stack(counts) / len(pixels) - mean**2, 1.0))
        return cls(name, *train, *val, classes, Inputs(train[0].shape[1:], mean, std, names, border=border))

    def __repr__(self) -> str:
        train, val = len(self.train_labels), len(self.val_labels)
        return f"<Dataset {self.name}: {train} + {val} images of {self.shape} in {self.classes} classes>"

    @property
    def shape(self) -> tuple[int, ...]:
        """(height, width, channels) of an image."""
        return self.train_images.shape[1:]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all images and labels, shortened, with their numbers."""
        parts = (self.train_images, self.train_labels, self.val_images, self.val_labels)
        total = hashlib.sha256()
        for part in parts:
            total.update(np.ascontiguousarray(part).data)
        return f"{len(self.train_labels)} + {len(self.val_labels)} samples, {total.hexdigest()[:16]}"

    def expect(self, share: Share, seed: int, iteration: int) -> None:
        """Nothing to prepare: everything is in memory."""

    def train_batch(self, share: Share, seed: int, iteration: int) -> tuple[np.ndarray, np.ndarray]:
        """(images uint8 (batch, *shape), labels) of the rank's share."""
        return self.train_images[share.indices], self.train_labels[share.indices]

    def val_batch(self, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """The validation images in `part`, and their labels."""
        return self.val_images[part], self.val_labels[part]

    def close(self) -> None:
        """Nothing to stop."""


def _checked(name: str, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Arrays of the right kind: uint8 images of four dimensions, whole labels of one. Raises UserError."""
    images, labels = np.asarray(images), np.asarray(labels)
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise UserError(
            f"data set {name}: images must be uint8 (samples, height, width, channels), 0 to 255, "
            f"found {images.dtype} {images.shape}"
        )
    if len(images) != len(labels):
        raise UserError(f"data set {name}: {len(images)} images but {len(labels)} labels")
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise UserError(f"data set {name}: labels must be integers (samples,), found {labels.dtype} {labels.shape}")
    return images if images.ndim == 4 else images[..., None], labels.astype(np.int64)


class Source(NamedTuple):
    """Where a data set's files are (`folder`), what makes it if it is random (`seed`), and how images are decoded: by
    how many `threads`, and whether a bad one is left out (`skip`) instead of ending the run.
    """

    folder: str | None = None
    seed: int = 0
    threads: int = 2
    skip: bool = False


# (what stands behind the colon of its name, where its files are) -> the data set
Maker = Callable[[str, Source], Data]

DATASETS: dict[str, Maker] = {}
EXAMPLES = ("images:224", "synthetic:32x32x3x10", "arrays:FILE.npz")


def dataset(name: str) -> Callable[[Maker], Maker]:
    """Decorator that registers what makes the data set `name`, for `--data name` and `load`.

    Raises UserError if another data set has that name.
    """

    def register(maker: Maker) -> Maker:
        check_free("dataset", name, maker, DATASETS)
        DATASETS[name] = maker
        return maker

    return register


def load(spec: str, folder: str | None = None, seed: int = 0, *, threads: int = 2, skip: bool = False) -> Data:
    """The data set that `spec` names, NAME or NAME:REST: mnist5k, mnist, cifar10, images:SIZE, arrays:FILE.npz, ….

    The rest as of `Source`. Raises UserError for an unknown name, a missing folder or a damaged file.
    """
    name, _, rest = spec.partition(":")
    if name not in DATASETS:
        raise unknown_name(
            "data set", name, [*sorted(set(DATASETS) - {each.partition(":")[0] for each in EXAMPLES}), *EXAMPLES]
        )
    place = None if folder is None else os.path.expanduser(folder)
    return DATASETS[name](rest, Source(place, seed, threads, skip))
