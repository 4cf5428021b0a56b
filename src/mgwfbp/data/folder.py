"""A folder of images, ImageNet's way: decoded by several threads, the next batches while this one is trained on.

    FOLDER/train/CLASS/*.jpg     FOLDER/val/CLASS/*.jpg          (.jpeg .png .bmp .webp, too)

Needs Pillow. An image is scaled so that its shorter side is 8/7 of SIZE; training takes a random SIZE × SIZE part of
it, validation the middle.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from mgwfbp.data.augment import draws
from mgwfbp.data.data import Normalised, Source, dataset
from mgwfbp.data.inputs import ENDINGS, Inputs, decoded, part
from mgwfbp.data.named import named_folder
from mgwfbp.data.shares import Share
from mgwfbp.errors import UserError

# ImageNet's mean and standard deviation of R, G and B, as is usual for photographs; in units of 0..255.
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
SCALE = 8 / 7  # 224 of 256, the usual proportion


@dataset("images")
def _images(rest: str, source: Source) -> ImageFolder:
    """The data set of `images` or `images:SIZE` (224 by default) in a folder. Raises UserError as ImageFolder does."""
    size = rest or "224"
    if not re.fullmatch(r"[1-9]\d{0,3}", size):
        raise UserError(f"data set images:{rest}: write the size of the images, as images:224")
    return ImageFolder(named_folder("images", source.folder), int(size), threads=source.threads, skip=source.skip)


class ImageFolder(Normalised):
    """The images below `folder` as RGB of `size` × `size`; without a val/ the training images are validated on, too.

    `threads` decode. An image that cannot be decoded raises UserError with its name; with `skip` it is said once and
    left out: in training the next readable one of the list stands in, so that every rank has its share.
    Raises UserError for a folder that is not laid out like this.
    """

    def __init__(self, folder: Path, size: int, *, threads: int = 2, skip: bool = False) -> None:
        if importlib.util.find_spec("PIL") is None:
            raise UserError("data set images: needs Pillow; pip install pillow")
        self.name, self.size, self.shape, self.skip = f"images:{size}", size, (size, size, 3), skip
        names = _classes(folder / "train")
        self.inputs = Inputs(self.shape, np.array(MEAN), np.array(STD), tuple(names), SCALE)
        self.classes = len(names)
        self.train_files, self.train_labels = _list(folder / "train", names)
        self.val_files, self.val_labels, self.validates = self.train_files, self.train_labels, "training"
        if (folder / "val").exists():
            self.validates = "validation"
            strangers = sorted(set(_classes(folder / "val")) - set(names))
            if strangers:
                raise UserError(f"data set images: {folder}/val has a class that train/ has not: {strangers[0]}")
            self.val_files, self.val_labels = _list(folder / "val", names)
        listed = "\n".join(str(path.relative_to(folder)) for path in [*self.train_files, *self.val_files])
        self.fingerprint = f"{len(self.train_files)} + {len(self.val_files)} files, "
        self.fingerprint += hashlib.sha256(listed.encode(errors="surrogateescape")).hexdigest()[:16]
        self._bad: set[Path] = set()
        self._pool = ThreadPoolExecutor(threads, "decode")
        self._expected: dict[int, list[Future[tuple[np.ndarray, int]]]] = {}

    def expect(self, share: Share, seed: int, iteration: int) -> None:
        """Begin to decode what `train_batch` will ask for with the same arguments."""
        if iteration not in self._expected:
            places = draws(share, seed, iteration)[:, :2]
            self._expected[iteration] = [
                self._pool.submit(self._train_image, int(index), place)
                for index, place in zip(share.indices, places, strict=True)
            ]

    def train_batch(self, share: Share, seed: int, iteration: int) -> tuple[np.ndarray, np.ndarray]:
        """(images uint8 (batch, size, size, 3), labels): a random part of each image, by seed, iteration and row."""
        self.expect(share, seed, iteration)
        decoded = [future.result() for future in self._expected.pop(iteration)]
        images = [image for image, _ in decoded]
        labels = self.train_labels[[index for _, index in decoded]]
        return np.stack(images) if images else np.empty((0, *self.shape), np.uint8), labels

    def val_batch(self, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """The middle of the validation images in `part`, and their labels; with `skip` without the bad ones."""
        middle = np.array([0.5, 0.5])
        decoded = list(self._pool.map(lambda path: self._image(path, middle), self.val_files[part]))
        good = [image is not None for image in decoded]
        images = [image for image in decoded if image is not None]
        return np.stack(images) if images else np.empty((0, *self.shape), np.uint8), self.val_labels[part][good]

    def close(self) -> None:
        """Stop decoding."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _train_image(self, index: int, place: np.ndarray) -> tuple[np.ndarray, int]:
        """The image `index`, or the first readable one behind it, and its number."""
        for number in range(len(self.train_files)):
            index_now = (index + number) % len(self.train_files)
            image = self._image(self.train_files[index_now], place)
            if image is not None:
                return image, index_now
        raise UserError("data set images: no image of the training part can be decoded")

    def _image(self, path: Path, place: np.ndarray) -> np.ndarray | None:
        """The part of the image at `place` (0..1 down, 0..1 right) of what the crop leaves; None if it is left out."""
        try:
            with decoded(path, max(self.size, round(self.size * SCALE))) as image:
                return part(image, (self.size, self.size), 3, SCALE, (place[0], place[1]))
        except UserError as error:
            if not self.skip:
                raise UserError(f"{error}; mend or remove it, or --on-bad-image skip") from None
            if path not in self._bad:
                self._bad.add(path)
                sys.stderr.write(f"mgwfbp: {error}; left out\n")
            return None


def _classes(folder: Path) -> list[str]:
    """The names of the classes, sorted: a folder each."""
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise UserError(f"data set images: {folder} cannot be read ({error.strerror or error})") from None
    if not names:
        raise UserError(f"data set images: {folder} holds no folders; lay images out as {folder}/CLASS/*.jpg")
    return names


def _list(folder: Path, names: Sequence[str]) -> tuple[list[Path], np.ndarray]:
    """(files, labels) in the order of class and file name, the same on every machine."""
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        found: list[Path] = []
        try:
            if (folder / name).is_dir():
                entries: Any = (folder / name).iterdir()
                found = sorted(entry for entry in entries if entry.suffix.lower() in ENDINGS and entry.name[0] != ".")
        except OSError as error:
            raise UserError(f"data set images: {folder / name} cannot be read ({error.strerror or error})") from None
        if not found and folder.name == "train":
            raise UserError(f"data set images: {folder / name} holds no image ({' '.join(sorted(ENDINGS))})")
        files += found
        labels += [label] * len(found)
    if not files:
        raise UserError(f"data set images: {folder} holds no image ({' '.join(sorted(ENDINGS))})")
    return files, np.array(labels, np.int64)
