"""Installed as a reader does: from the repository's zip, the source archive and the wheel; with the oldest versions of
everything that pyproject.toml permits; on the oldest and the newest Python that can be found here.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_cli import run

ROOT = Path(__file__).resolve().parents[1]
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet", "install")

pytestmark = [pytest.mark.all, pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository")]


def python(version):
    """An interpreter of `version` ("3.10"), or None."""
    places = [shutil.which(f"python{version}"), *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    for place in filter(None, places):
        if run(place, "-c", f"import sys, venv; assert '%d.%d' % sys.version_info[:2] == '{version}'").returncode == 0:
            return place
    return None


def oldest():
    """The oldest version of each dependency that pyproject.toml permits. mpi4py 4.0 has no wheels."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    wanted = [
        "numpy",
        "click",
        "rich",
        "threadpoolctl",
        "safetensors",
        "numba",
        "onednn-cpu-gomp",
        "pillow",
        "matplotlib",
    ]
    found = dict(re.findall(r'"([\w-]+)>=([\d.]+)', text))
    return [f"{name}=={found[name]}" for name in wanted]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the zip of what is committed, and the source archive and wheel that are built of it."""
    folder = tmp_path_factory.mktemp("built")
    archive = ["git", "-C", ROOT, "archive", "--format=zip", "--prefix=mgwfbp-main/", "-o", folder / "main.zip", "HEAD"]
    assert run(*archive).returncode == 0
    done = run(sys.executable, "-m", "zipfile", "-e", folder / "main.zip", folder)
    assert done.returncode == 0, done.stderr
    code = "from setuptools import build_meta as b; print(b.build_sdist('../dist'), b.build_wheel('../dist'))"
    (folder / "dist").mkdir()
    done = run(sys.executable, "-c", code, cwd=folder / "mgwfbp-main", seconds=120)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("version", "what", "pins"),
    [
        ("3.10", "main.zip", oldest()),
        ("3.13", "dist/*.tar.gz", []),
        ("3.12", "dist/*.whl", ["click==8.2.0"]),
    ],
    ids=["zip-oldest-3.10", "sdist-3.13", "wheel-3.12"],
)
def test_it_installs_trains_and_is_used(built, tmp_path, version, what, pins):
    interpreter = python(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    (source,) = built.glob(what)
    assert run(interpreter, "-m", "venv", "v", cwd=tmp_path, seconds=60).returncode == 0
    done = run("v/bin/python", *PIP, f"{source}", "mpich", *pins, cwd=tmp_path, seconds=300)
    assert done.returncode == 0, done.stderr
    for command in (
        "v/bin/mpirun -n 2 v/bin/mgwfbp train mlp --data synthetic:28x28x1x10 --iterations 12 --out run",
        "v/bin/mpirun -n 2 v/bin/mgwfbp evaluate run",
        "v/bin/mgwfbp export run -o weights.safetensors",
        "v/bin/mgwfbp plan run",
        "v/bin/mgwfbp simulate k80-googlenet --network k80-10gbe --nodes 8",
    ):
        done = run(*command.split(), cwd=tmp_path, seconds=120, MGWFBP_KERNELS="")
        assert done.returncode == 0, (command, done.stderr)
    used = json.loads((tmp_path / "run/config.json").read_text())["used"]
    assert used["kernels"] == ("fast" if any(pin.startswith("numba") for pin in pins) else "numpy")
    wrong = run("v/bin/mpirun", "-n", 2, "v/bin/mgwfbp", "train", "nosuch", cwd=tmp_path, seconds=60)
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr


def test_the_source_archive_is_the_whole_project(built):
    (archive,) = built.glob("dist/*.tar.gz")
    listed = subprocess.run(["tar", "tzf", archive], capture_output=True, text=True, check=True).stdout
    for part in (
        "tests/conftest.py",
        "tests/mpi/",
        "src/mgwfbp/models/lenet.py",
        "docs/",
        "jobs/",
        "examples/",
        "Makefile",
    ):
        assert f"/{part}" in listed, part
