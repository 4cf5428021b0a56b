"""What a net was trained to see: the shape of its images, how they were normalised, the names of the classes; and how
an image file becomes such an input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mgwfbp.errors import UserError

Pair = tuple[int, int]
ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}
UPPER_EIGHT = 8  # of 16 bits: what is left of a grey value of 16 bits
EXIF_ORIENTATION = 0x0112


@dataclass(frozen=True)
class Inputs:
    """Images as a net of `shape` (height, width, channels) wants them.

    `mean` and `std` are a number a channel, in units of 0..255. An image is scaled until it covers `scale` times the
    shape, and its middle taken; `border` rows and columns of zeros (before, after) are part of the shape.
    """

    shape: tuple[int, ...]
    mean: np.ndarray
    std: np.ndarray
    class_names: tuple[str, ...]
    scale: float = 1.0
    border: Pair = (0, 0)

    def normalised(self, images: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
        """`images` (uint8) as `dtype`, less the mean and over the standard deviation of each channel.

        Where they are: those of a GPU's array module are normalised there.
        """
        result = images.astype(dtype)
        result -= np.asarray(self.mean.astype(dtype), like=images)
        result *= np.asarray((1.0 / self.std).astype(dtype), like=images)
        return result

    @property
    def inner(self) -> tuple[int, int, int]:
        """The shape without its border."""
        height, width, channels = self.shape
        return height - sum(self.border), width - sum(self.border), channels

    def check(self, images: np.ndarray, where: str = "images") -> np.ndarray:
        """`images` as uint8 (samples, *shape): one image or several, grey ones without their last axis, too.

        Raises UserError, beginning with `where`, for another type or shape.
        """
        if images.dtype != np.uint8:
            raise UserError(f"{where}: must be uint8, 0 to 255, found {images.dtype}")
        for shape in (self.shape, self.inner):
            for one in (shape, shape[:-1] if shape[-1] == 1 else shape):
                if images.shape[-len(one) :] == one and images.ndim - len(one) in (0, 1):
                    images = images.reshape(-1, *shape)
                    around = (self.border, self.border) if shape != self.shape else ((0, 0), (0, 0))
                    return np.pad(images, ((0, 0), *around, (0, 0)))
        raise UserError(f"{where}: the net sees images of {self.shape}, found {images.shape}")

    def read(self, path: Path) -> np.ndarray:
        """The image file `path`, or the uint8 array(s) in an .npy file, as uint8 (images, *shape).

        Raises UserError if it is none.
        """
        if path.suffix.lower() == ".npy":
            try:
                found = np.load(path, allow_pickle=False)
                if not isinstance(found, np.ndarray):
                    raise ValueError("several arrays")
                return self.check(found, f"image {path}")
            except UserError:
                raise
            except (OSError, ValueError, EOFError) as error:
                reason = getattr(error, "strerror", None) or "it is no .npy file of plain numbers"
                raise UserError(f"image {path}: cannot be read ({reason})") from None
        height, width, channels = self.inner
        side = max(height, width)
        with decoded(path, max(side, round(side * self.scale)) if self.scale != 1 else None) as image:
            found = part(image, (height, width), channels, self.scale, (0.5, 0.5))
        return np.pad(found, (self.border, self.border, (0, 0)))[None]

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "shape": list(self.shape), "mean": self.mean.tolist(), "std": self.std.tolist(),
            "class_names": list(self.class_names), "scale": self.scale, "border": list(self.border),
        }  # fmt: skip


def inputs_from_dict(value: Any, where: str) -> Inputs:
    """The Inputs of `to_dict`'s object. Raises UserError, beginning with `where`, for anything else."""
    try:
        shape, border = tuple(int(side) for side in value["shape"]), tuple(int(side) for side in value["border"])
        mean, std = (np.array(value[key], np.float64) for key in ("mean", "std"))
        names = tuple(map(str, value["class_names"]))
        found = Inputs(shape, mean, std, names, float(value["scale"]), (border[0], border[1]))
        if len(mean) != shape[-1] or len(std) != shape[-1] or len(border) != 2 or not found.class_names:
            raise ValueError
    except (KeyError, TypeError, ValueError, IndexError):
        raise UserError(f"{where}: it does not say what images the net was trained on") from None
    return found


@contextmanager
def decoded(path: Path, reduce_to: int | None = None) -> Iterator[Any]:
    """The image file `path`, upright and with 8 bits a channel; a large JPEG no smaller than `reduce_to` on any side.

    Raises UserError where Pillow is missing, and with the file's name for whatever Pillow raises of a damaged one, here
    or where its pixels are asked for.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise UserError("images need Pillow; pip install pillow") from None
    Image.MAX_IMAGE_PIXELS = None  # the user's own files; a very large one is slow, not an attack
    try:
        with Image.open(path) as image:
            turned = image.getexif().get(EXIF_ORIENTATION, 1) != 1
            if reduce_to is not None:
                image.draft("RGB", (reduce_to, reduce_to))  # a JPEG decodes itself smaller, much faster
            yield _eight_bits(ImageOps.exif_transpose(image) if turned else image)
    except UserError:
        raise
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise UserError(f"image {path}: cannot be read ({error.strerror})") from None
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError, OverflowError) as error:
        reason = "it is no image" if type(error).__name__ == "UnidentifiedImageError" else str(error)
        raise UserError(f"image {path}: cannot be decoded ({reason})") from None


def part(image: Any, size: Pair, channels: int, scale: float, place: Sequence[float]) -> np.ndarray:
    """`size` (height, width) pixels of a Pillow `image` that was scaled until it covers `scale` times them, as uint8.

    `place` says which: from 0 to 1 of what is left over, down and right. `channels` are 1 (grey) or 3 (RGB).
    """
    from PIL import Image

    if channels not in (1, 3):
        raise UserError(f"an image file cannot have the {channels} channels of the net; give a .npy file")
    (high, wide), sides = size, [max(side, round(side * scale)) for side in size]
    ratio = max(sides[0] / image.height, sides[1] / image.width)
    height, width = (max(side, round(length * ratio)) for side, length in zip(sides, image.size[::-1], strict=True))
    # Only the part that is wanted is scaled: `box` is in pixels of the file.
    top, left = int(place[0] * (height - high + 1)), int(place[1] * (width - wide + 1))
    across, down = image.width / width, image.height / height
    box = (left * across, top * down, (left + wide) * across, (top + high) * down)
    scaled = image.convert("RGB" if channels == 3 else "L").resize((wide, high), Image.Resampling.BILINEAR, box=box)
    return np.asarray(scaled).reshape(high, wide, channels)


def _eight_bits(image: Any) -> Any:
    """A grey image of 16 bits (Pillow's modes I;16 and I) by its upper eight; Pillow itself would make it white."""
    from PIL import Image

    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image).astype(np.int64)
    shift = UPPER_EIGHT if values.max(initial=0) > 255 else 0
    return Image.fromarray((values >> shift).clip(0, 255).astype(np.uint8))
