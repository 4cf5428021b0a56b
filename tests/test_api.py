"""What is public is stable: names and signatures, compared with a list.

A change that is meant is written down by `python -m tests.test_api > tests/public_api.txt`.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mgwfbp as mg

LIST = Path(__file__).with_name("public_api.txt")
MODULES = {"layers", "models"}


def described():
    """One line a public name, and one a public method of a class."""
    lines = []
    for name in mg.__all__:
        thing = getattr(mg, name)
        if name in MODULES:
            public = {each: getattr(thing, each) for each in thing.__all__}
            lines += [f"{name}.{each}" + (signature(what) if callable(what) else "") for each, what in public.items()]
        elif inspect.isclass(thing):
            lines.append(f"{name}{signature(thing)}")
            for each, method in sorted(vars(thing).items()):
                method = getattr(method, "__func__", method)
                if not each.startswith("_") and inspect.isfunction(method):
                    lines.append(f"{name}.{each}{signature(method)}")
        elif callable(thing):
            lines.append(f"{name}{signature(thing)}")
        else:
            lines.append(name)
    return lines


def signature(thing):
    """Parameters with their defaults, without types: those are for type checkers."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except ValueError:  # an exception's
        return ""
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return re.sub(r"<module '(\w+)' from [^>]*>", r"\1", str(inspect.Signature(bare)))


def test_names_and_signatures_are_those_of_the_list():
    assert described() == LIST.read_text("utf-8").splitlines()


def test_every_public_name_is_on_the_page_of_the_library():
    page = (LIST.parents[1] / "docs" / "library.md").read_text("utf-8")
    for name in mg.__all__[1:]:
        assert f"mg.{name}" in page, name
        assert getattr(mg, name).__doc__, name


def test_importing_it_costs_nothing_and_starts_no_mpi():
    code = "import sys, mgwfbp; sys.exit(bool({'numpy', 'mpi4py', 'click'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    code = "import mgwfbp as mg; [getattr(mg, name) for name in mg.__all__]; from mpi4py import MPI; "
    code += "import sys; sys.exit(MPI.Is_initialized())"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'mgwfbp' has no attribute 'Network'; public are"):
        _ = mg.Network
    assert set(mg.__all__) <= set(dir(mg))


class Wrong(mg.layers.Linear):
    def backward_input(self, dy):
        return 0.9 * super().backward_input(dy)


class Transposed(mg.layers.Linear):
    def backward_input(self, dy):
        return super().backward_input(dy).T


def test_the_gradient_checker_finds_what_is_wrong_and_names_it():
    errors = mg.check_gradients(mg.layers.Conv2d(4, 3, stride=2, pad=1), (6, 6, 3))
    assert set(errors) == {"input", "weight", "bias"}
    assert max(errors.values()) < 1e-7
    assert set(mg.check_gradients(mg.layers.Add(), (3, 3, 2), (3, 3, 2))) == {"input 0", "input 1"}
    with pytest.raises(mg.UserError, match=r"\(Wrong\): the gradient of input is wrong, by 1.0e-01 of its size"):
        mg.check_gradients(Wrong(5), (7,))
    with pytest.raises(mg.UserError, match=r"the gradient of input is \(7, 3\), it must be \(3, 7\)"):
        mg.check_gradients(Transposed(5), (7,))


class Rebound(mg.layers.Linear):
    def backward_parameters(self, dy):
        self.d_weight, self.d_bias[...] = self.x.T @ dy, dy.sum(axis=0)


class Added(mg.layers.Linear):
    def backward_parameters(self, dy):
        super().backward_parameters(dy)
        self.d_weight += np.nan


class Nothing(mg.layers.Linear):
    def backward_input(self, dy):
        super().backward_input(dy)


class Misstated(mg.layers.ReLU):
    def connect(self, *shapes):
        return (3,)


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (Rebound(5), r"d_weight became another array; write into it: self.d_weight\[...\]"),
        (Added(5), "the gradient of weight is wrong, is not written, or added to"),
        (Nothing(5), r"the gradient of input is missing, it must be \(3, 7\)"),
        (Misstated(), r"connect says that an output is \(3,\), forward makes \(7,\)"),
        (mg.layers.Linear, r"needs a layer, as Linear\(5\), and the shape"),
    ],
)
def test_the_mistakes_that_beginners_make_in_a_layer(layer, says):
    with pytest.raises(mg.UserError, match=says):
        mg.check_gradients(layer, (7,))


def test_arrays_become_a_data_set():
    images, labels = np.zeros((10, 4, 4), np.uint8), np.arange(10) % 3
    data = mg.Dataset.from_arrays("mine", images, labels)
    assert (data.shape, data.classes, len(data.train_labels), len(data.val_labels)) == ((4, 4, 1), 3, 8, 2)
    whole = mg.Dataset.from_arrays("mine", images, labels, images[:3], labels[:3], classes=7)
    assert (whole.classes, len(whole.train_labels), len(whole.val_labels)) == (7, 10, 3)


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        (np.zeros((10, 4, 4)), np.zeros(10, int), "images must be uint8 .* found float64"),
        (np.zeros((10, 4, 4), np.uint8), np.zeros(10), "labels must be integers .* found float64"),
        (np.zeros((10, 4, 4), np.uint8), np.zeros(9, int), "10 images but 9 labels"),
        (np.zeros((10, 4, 4), np.uint8), np.full(10, -1), "labels must be 0..0, found -1..-1"),
        (np.zeros((3, 4, 4), np.uint8), np.zeros(3, int), "3 samples are too few"),
    ],
)
def test_arrays_that_do_not_fit(images, labels, says):
    with pytest.raises(mg.UserError, match=says):
        mg.Dataset.from_arrays("mine", images, labels)


def test_arrays_in_a_file(tmp_path):
    images, labels = np.zeros((10, 4, 4, 3), np.uint8), np.arange(10) % 2
    np.savez(tmp_path / "whole.npz", images=images, labels=labels, classes=5)
    assert mg.load("arrays:whole.npz", str(tmp_path)).classes == 5
    np.savez(tmp_path / "part.npz", pictures=images)
    np.save(tmp_path / "one.npy", images)
    np.savez(tmp_path / "objects.npz", images=np.array([{}]), labels=labels)
    (tmp_path / "no.npz").write_bytes(b"PK\x03\x04 and nothing")
    for name, says in (
        ("part.npz", "has no array 'images'; found pictures"),
        ("one.npy", "it holds one array"),
        ("objects.npz", "no .npz file of plain arrays"),
        ("no.npz", "cannot be read"),
        ("none.npz", "No such file"),
        ("", "name the file"),
    ):
        with pytest.raises(mg.UserError, match=says):
            mg.load(f"arrays:{name}", str(tmp_path))


if __name__ == "__main__":
    print("\n".join(described()))
