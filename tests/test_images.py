"""A folder of JPEGs as a data set."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from mgwfbp.data import Inputs, Share, inputs_from_dict, load
from mgwfbp.errors import UserError

Image = pytest.importorskip("PIL.Image", reason="Pillow, which decodes images, is not installed")


def gradient(height, width):
    """An image whose red is how far down a pixel is, green how far right, of 240; blue is 128."""
    down, across = np.mgrid[:height, :width]
    return np.stack([down * 240 / height, across * 240 / width, np.full((height, width), 128)], 2).astype(np.uint8)


@pytest.fixture
def folder(tmp_path):
    for part, count in (("train", 3), ("val", 2)):
        for name in ("b", "a"):
            place = tmp_path / part / name
            place.mkdir(parents=True)
            for number in range(count):
                Image.fromarray(gradient(90 + 10 * number, 120)).save(place / f"{number}.jpg", quality=95)
    (tmp_path / "train" / "a" / "notes.txt").write_text("no image")
    return tmp_path


def open_folder(folder, size=56, **settings):
    return load(f"images:{size}", str(folder), **{"threads": 2, "skip": False, **settings})


def share(indices, first_row=0, global_batch=6):
    return Share(np.array(indices), first_row, global_batch)


def test_classes_and_files_in_order_of_their_names(folder):
    data = open_folder(folder)
    assert (data.classes, data.shape) == (2, (56, 56, 3))
    assert [f"{path.parent.name}/{path.name}" for path in data.train_files] == [
        f"{name}/{number}.jpg" for name in "ab" for number in range(3)
    ]
    assert data.train_labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.val_labels.tolist() == [0, 0, 1, 1]


def test_validation_takes_the_middle_of_the_scaled_image(folder):
    images, labels = open_folder(folder).val_batch(slice(0, 1))
    assert labels.tolist() == [0]
    # 90 × 120 is scaled to 64 × 85; the middle 56 × 56 begins 4 pixels down and 14 to the right
    top, left = 4.5 * 240 / 64, 14.5 * 240 / 85
    expected = np.stack(
        np.broadcast_arrays(top + np.arange(56)[:, None] * 240 / 64, left + np.arange(56) * 240 / 85), 2
    )
    assert np.abs(images[0, ..., :2] - expected).max() < 8
    assert np.abs(images[0, ..., 2].astype(int) - 128).max() < 8


def test_training_parts_depend_on_seed_iteration_and_row_alone(folder):
    data = open_folder(folder)
    whole, labels = data.train_batch(share(range(6)), seed=1, iteration=4)
    assert labels.tolist() == data.train_labels.tolist()
    for rank in range(3):
        part = share([2 * rank, 2 * rank + 1], 2 * rank)
        if rank:
            data.expect(part, 1, 4)  # decoding ahead changes nothing
        assert np.array_equal(data.train_batch(part, 1, 4)[0], whole[2 * rank : 2 * rank + 2])
    assert not np.array_equal(data.train_batch(share(range(6)), 1, 5)[0], whole)
    assert not np.array_equal(data.train_batch(share(range(6)), 2, 4)[0], whole)
    assert data.train_batch(share([]), 1, 4)[0].shape == (0, 56, 56, 3)


def test_large_jpegs_are_cropped_where_small_ones_are(tmp_path):
    (tmp_path / "train" / "a").mkdir(parents=True)
    for number, factor in enumerate((1, 8)):  # the large one is decoded at an eighth
        Image.fromarray(gradient(100 * factor, 140 * factor)).save(tmp_path / "train" / "a" / f"{number}.jpg")
    data = open_folder(tmp_path)
    small, large = data.val_batch(slice(0, 2))[0].astype(int)
    assert np.abs(small - large).max() < 10


def test_other_formats_become_rgb(tmp_path):
    place = tmp_path / "train" / "a"
    place.mkdir(parents=True)
    picture = Image.fromarray(gradient(60, 60))
    for mode, name in (("L", "0.jpg"), ("CMYK", "1.jpg"), ("RGBA", "2.png"), ("P", "3.png"), ("RGB", "4.bmp")):
        picture.convert(mode).save(place / name)
    assert open_folder(tmp_path, 8).val_batch(slice(0, 5))[0].shape == (5, 8, 8, 3)


def test_without_a_val_folder_the_training_images_are_validated(folder):
    (folder / "val").rename(folder / "elsewhere")
    assert open_folder(folder).val_files == open_folder(folder).train_files


def test_a_bad_image_stops_with_its_name(folder):
    bad = folder / "train" / "a" / "1.jpg"
    bad.write_bytes(bad.read_bytes()[:300])
    with pytest.raises(UserError, match=r"a/1.jpg: cannot be decoded \(.*; mend or remove it, or --on-bad-image skip"):
        open_folder(folder).train_batch(share([1]), 1, 0)


def test_a_bad_image_is_skipped_and_said_once(folder, capsys):
    for name in ("train/a/2.jpg", "val/a/0.jpg"):
        (folder / name).write_bytes(b"\xff\xd8 no more")
    data = open_folder(folder, skip=True)
    for iteration in (0, 1):
        images, labels = data.train_batch(share([1, 2]), 1, iteration)
        assert images.shape == (2, 56, 56, 3)
        assert labels.tolist() == [0, 1]  # the next one stands in, with its own label
    assert capsys.readouterr().err.count("a/2.jpg: cannot be decoded") == 1
    images, labels = data.val_batch(slice(0, 4))
    assert (len(images), labels.tolist()) == (3, [0, 1, 1])
    for path in data.train_files:
        path.write_bytes(b"")
    with pytest.raises(UserError, match="no image of the training part"):
        data.train_batch(share([0]), 1, 3)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "train").rename(folder / "t"), "train cannot be read"),
        (lambda folder: (folder / "val" / "a").rename(folder / "val" / "c"), "a class that train/ has not: c"),
        (lambda folder: (folder / "train" / "c").mkdir(), "train/c holds no image"),
        (lambda folder: [path.unlink() for path in folder.glob("val/*/*")], "val holds no image"),
    ],
)
def test_folders_that_are_laid_out_otherwise(folder, spoil, message):
    spoil(folder)
    with pytest.raises(UserError, match=message):
        open_folder(folder)


@pytest.mark.parametrize("spec", ["images:0", "images:-3", "images:big", "images:224x224"])
def test_sizes_that_are_none(folder, spec):
    with pytest.raises(UserError, match="write the size of the images"):
        load(spec, str(folder), threads=1, skip=False)


def test_a_grey_image_of_16_bits_keeps_its_greys(tmp_path):
    image = pytest.importorskip("PIL.Image")
    values = np.linspace(0, 65535, 32 * 32).reshape(32, 32)
    folder = tmp_path / "train" / "a"
    folder.mkdir(parents=True)
    image.fromarray(values.astype(np.uint16)).save(folder / "deep.png")
    image.fromarray((values / 257).astype(np.uint8)).save(folder / "plain.png")
    data = load("images:28", str(tmp_path))
    deep, plain = (data.val_batch(slice(i, i + 1))[0][0].astype(int) for i in (0, 1))
    assert np.abs(deep - plain).max() <= 2
    assert plain.std() > 40


def test_an_image_is_upright_where_its_camera_was_not(tmp_path):
    from PIL import Image

    upright = gradient(90, 120)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned to the right to be seen
    folder = tmp_path / "train" / "a"
    folder.mkdir(parents=True)
    Image.fromarray(upright).save(folder / "0.jpg", quality=95)
    Image.fromarray(np.rot90(upright).copy()).save(folder / "1.jpg", quality=95, exif=exif)
    images, _ = load("images:28", str(tmp_path)).val_batch(slice(0, 2))
    assert np.abs(images[0].astype(int) - images[1]).max() < 8


@pytest.mark.parametrize("mode", ["P", "L", "CMYK", "RGBA"])
def test_pictures_of_any_mode_become_rgb(tmp_path, mode):
    from PIL import Image

    folder = tmp_path / "train" / "a"
    folder.mkdir(parents=True)
    grey = np.repeat(np.arange(0, 240, 5, dtype=np.uint8)[:, None, None], 3, axis=2).repeat(48, axis=1)
    picture = Image.fromarray(grey).quantize(64) if mode == "P" else Image.fromarray(grey).convert(mode)
    picture.save(folder / ("0.jpg" if mode == "CMYK" else "0.png"), **({"quality": 95} if mode == "CMYK" else {}))
    Image.fromarray(grey).save(folder / "1.png")
    images, _ = load("images:28", str(tmp_path)).val_batch(slice(0, 2))
    assert np.abs(images[0].astype(int) - images[1]).max() <= 8


def test_without_a_val_folder_the_data_says_that_it_validates_on_training_images(folder):
    assert open_folder(folder).validates == "validation"
    shutil.rmtree(folder / "val")
    assert open_folder(folder).validates == "training"


def test_a_file_becomes_what_the_net_was_trained_to_see(folder, tmp_path):
    from PIL import Image

    data = open_folder(folder)
    (from_file,) = data.inputs.read(folder / "val" / "a" / "0.jpg")
    assert np.array_equal(from_file, data.val_batch(slice(0, 1))[0][0])
    grey = Inputs((8, 6, 1), np.zeros(1), np.ones(1), ("a", "b"), border=(1, 1))
    pixels = np.arange(24, dtype=np.uint8).reshape(6, 4) * 10
    Image.fromarray(pixels).save(tmp_path / "x.png")
    np.save(tmp_path / "x.npy", pixels)
    for name in ("x.png", "x.npy"):
        found = grey.read(tmp_path / name)
        assert found.shape == (1, 8, 6, 1)
        assert np.array_equal(found[0, 1:-1, 1:-1, 0], pixels)
        assert found.sum() == pixels.sum()
    assert grey.check(np.zeros((5, 8, 6), np.uint8)).shape == (5, 8, 6, 1)
    assert inputs_from_dict(grey.to_dict(), "here").to_dict() == grey.to_dict()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.png", b"no image", "cannot be decoded .it is no image."),
        ("x.npy", b"no array", "it is no .npy file"),
        ("y.npy", np.zeros((8, 6, 1)), "must be uint8, 0 to 255, found float64"),
        ("z.npy", np.zeros((9, 6, 1), np.uint8), r"the net sees images of \(8, 6, 1\), found \(9, 6, 1\)"),
    ],
)
def test_files_that_cannot_become_an_input(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_bytes(content) if isinstance(content, bytes) else np.save(path, content)
    with pytest.raises(UserError, match=says):
        Inputs((8, 6, 1), np.zeros(1), np.ones(1), ("a",)).read(path)
    with pytest.raises(UserError, match="no such|No such"):
        Inputs((8, 6, 1), np.zeros(1), np.ones(1), ("a",)).read(tmp_path / "none.png")


def test_a_large_jpeg_is_read_as_validation_reads_it(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    place = tmp_path / "train" / "a"
    place.mkdir(parents=True)
    coarse = rng.integers(0, 256, (90, 120, 3), np.uint8)
    Image.fromarray(coarse).resize((1200, 900)).save(place / "0.jpg", quality=90)
    data = load("images:64", str(tmp_path))
    assert np.array_equal(data.inputs.read(place / "0.jpg")[0], data.val_batch(slice(0, 1))[0][0])


def test_several_arrays_and_four_channels_are_one_line(tmp_path):
    from PIL import Image

    np.savez(tmp_path / "x.npz", a=np.zeros(3))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    four = Inputs((8, 6, 4), np.zeros(4), np.ones(4), ("a",))
    with pytest.raises(UserError, match="it is no .npy file of plain numbers"):
        four.read(tmp_path / "x.npy")
    Image.new("RGB", (8, 8)).save(tmp_path / "x.png")
    with pytest.raises(UserError, match="^an image file cannot have the 4 channels"):
        four.read(tmp_path / "x.png")
