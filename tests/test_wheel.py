"""The wheel that a reader builds, from a folder without links as a zip has it, holds all that the examples need."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.test_cli import MPIRUN, needs_mpirun, run
from tests.test_examples import EXAMPLES

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the installed wheel, to be put before everything else."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (source / "models").write_text("src/mgwfbp/models")  # what a zip makes of the link
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    done = run(*pip, "wheel", "--no-deps", "--wheel-dir", folder / "wheels", source, seconds=120)
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "wheels").glob("*.whl")
    done = run(*pip, "install", "--no-deps", "--target", folder / "site", wheel, seconds=60)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.mark.all
@needs_mpirun
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_with_it_on_one_two_and_three_ranks(installed, tmp_path, example):
    shutil.copy(example, tmp_path)
    where = run(sys.executable, "-c", "import mgwfbp; print(mgwfbp.__file__)", PYTHONPATH=str(installed), cwd=tmp_path)
    assert str(installed) in where.stdout
    for ranks in (1, 2, 3):
        start = [MPIRUN, "-n", ranks, sys.executable, example.name]
        done = run(*start, cwd=tmp_path, PYTHONPATH=str(installed), seconds=90)
        assert done.returncode == 0, done.stderr
        assert "accuracy" in done.stdout


@pytest.mark.all
def test_what_is_no_module_is_there_too(installed):
    for pattern in ("models/resnet.py", "kernels/gpu/cuda/*.cu", "bench/devices/*.toml", "simulate/figures/*.json"):
        assert list((installed / "mgwfbp").glob(pattern)), pattern
    assert (installed / "mgwfbp/py.typed").exists()
