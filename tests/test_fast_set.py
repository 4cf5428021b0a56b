"""The fast kernel set: installed elsewhere, where nothing can be written, and where OpenMP is told to bind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mgwfbp
from mgwfbp.kernels import kernel_set, openmp_binding
from tests.test_cli import MGWFBP, MPIRUN, needs_mpirun, run

PACKAGE = Path(mgwfbp.__file__).parent


@pytest.fixture(autouse=True)
def _fast():
    if kernel_set("fast", quiet=True).name != "fast":
        pytest.skip("the fast kernels cannot be loaded here")


def python(code, *arguments, seconds=60, **environment):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    own = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, env=own)


def wheel(place, library):
    """A wheel as pip --user and --prefix install it: its list of files says where the library lies."""
    packages = place / "lib" / "python" / "site-packages"
    listed = packages / "onednn_cpu_gomp-2030.0.dist-info"
    listed.mkdir(parents=True)
    (listed / "METADATA").write_text("Metadata-Version: 2.1\nName: onednn-cpu-gomp\nVersion: 2030.0\n")
    (listed / "RECORD").write_text("../../libdnnl.so.3,,\n")
    if library:
        (place / "lib" / "libdnnl.so.3").symlink_to(library)
    return packages


FIND = "from mgwfbp.kernels.fast.onednn import find_library, onednn; onednn(); print(find_library())"
LOAD = "import sys; sys.prefix = '/nowhere'; from mgwfbp.kernels import why_not_fast; print(why_not_fast())"


def test_the_library_is_found_by_the_wheels_own_list_of_files(tmp_path):
    real = Path(python(FIND).stdout.strip())
    if not real.exists():
        pytest.skip("the system's own oneDNN is used here")
    packages = wheel(tmp_path, real)
    found = python(FIND.replace("print(", "import sys; sys.prefix = '/nowhere'; print("), PYTHONPATH=packages)
    assert found.stdout.strip() == str(real.resolve()), found.stderr
    moved = tmp_path / "lib" / "libdnnl.so.3"
    moved.unlink()
    shutil.copy(real, moved)
    assert python(FIND, PYTHONPATH=packages).stdout.strip() == str(moved.resolve())


def test_a_wheel_without_its_library_is_no_reason_to_install_it(tmp_path):
    said = python(LOAD, PYTHONPATH=wheel(tmp_path, None)).stdout
    assert "onednn-cpu-gomp is installed without it" in said
    assert "pip install" not in said


@pytest.fixture
def unwritable(tmp_path):
    """(a copy of the package beside which nothing can be written, not even by root; its environment)."""
    shutil.copytree(PACKAGE, tmp_path / "mgwfbp", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "mgwfbp" / "kernels" / "fast" / "__pycache__").write_text("no folder")
    (tmp_path / "tmp").mkdir()
    outside = {"HOME": "/proc/nowhere", "XDG_CACHE_HOME": "/proc/nowhere", "PYTHONPATH": str(tmp_path)}
    return tmp_path, {**outside, "TMPDIR": str(tmp_path / "tmp"), "NUMBA_CACHE_DIR": ""}


CACHE = """
import os
from mgwfbp.kernels.fast.float32 import can_cache, compiled
assert "nowhere" in os.path.expanduser("~"), os.path.expanduser("~")

@compiled
def twice(x):
    return 2 * x

print(can_cache(), os.environ["NUMBA_CACHE_DIR"], twice(2))
"""


def test_what_is_compiled_lies_in_a_folder_of_ones_own_where_nothing_else_can_be_written(unwritable):
    place, environment = unwritable
    folder = place / "tmp" / f"mgwfbp-numba-{os.getuid()}"
    script = place / "mgwfbp" / "kernels" / "fast" / "try.py"  # in the package: numba looks beside the file
    script.write_text(CACHE)
    command = [sys.executable, "-P", str(script)] if sys.version_info >= (3, 11) else [sys.executable, str(script)]
    own = {**os.environ, **environment}
    for expected, change in (
        (f"True {folder} 4", None),
        ("False  4", lambda: folder.chmod(0o777)),  # others could put code into it
        ("False  4", lambda: (shutil.rmtree(folder), folder.symlink_to(place))),
    ):
        if change:
            change()
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=own)
        assert done.stdout.strip() == expected, done.stderr
        if not change:
            assert folder.stat().st_mode & 0o777 == 0o700
            assert list(folder.rglob("*.nbi"))


@pytest.mark.all
def test_the_whole_set_works_with_an_unwritable_home_and_the_doctor_says_the_same(unwritable):
    _, environment = unwritable
    done = python("from mgwfbp.kernels import kernel_set; print(kernel_set('fast').name)", seconds=300, **environment)
    assert done.stdout == "fast\n"
    assert all("compiling the fast kernels, once" in line for line in done.stderr.splitlines())
    report = python("from mgwfbp.cli.main import main; main()", "doctor", **environment)
    assert "sets numpy, fast" in report.stdout, report.stderr


def test_the_doctor_finds_what_a_run_finds():
    """Both load the whole set."""
    broken = {"MGWFBP_ONEDNN": "/nowhere/libdnnl.so", "MGWFBP_KERNELS": "fast"}
    said = python("from mgwfbp.kernels import kernel_set; kernel_set()", **broken).stderr
    reason = said.partition("cannot be loaded (")[2].partition("); using")[0]
    assert "look at MGWFBP_ONEDNN" in reason
    report = python("from mgwfbp.cli.main import main; main()", "doctor", **broken)
    assert f"fast: {reason}" in report.stdout, report.stderr


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, None),
        ({"OMP_PROC_BIND": "true"}, "OMP_PROC_BIND=true"),
        ({"OMP_PROC_BIND": "FALSE", "OMP_PLACES": "cores"}, None),
        ({"OMP_PROC_BIND": "", "OMP_PLACES": "cores"}, "OMP_PLACES=cores"),
        ({"GOMP_CPU_AFFINITY": "0"}, "GOMP_CPU_AFFINITY=0"),
        ({"OMP_NUM_THREADS": "2"}, None),
    ],
)
def test_what_makes_openmp_bind(environment, found):
    assert openmp_binding(environment) == found


CORES = """
import os, sys, threading
from mgwfbp.comm import World
from mgwfbp.runs.start import load_kernels
world, before, found = World(), os.sched_getaffinity(0), []
load_kernels(world, "fast")
thread = threading.Thread(target=lambda: found.append(os.sched_getaffinity(0)))
thread.start()
thread.join()
sys.stdout.write(f"{os.sched_getaffinity(0) == before == found[0]}\\n")
"""


@needs_mpirun
@pytest.mark.skipif(sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize(
    "variable",
    [
        "OMP_PROC_BIND=true",
        *(pytest.param(other, marks=pytest.mark.all) for other in ("OMP_PLACES=cores", "GOMP_CPU_AFFINITY=0")),
    ],
)
def test_each_rank_keeps_its_cores_whatever_openmp_is_told(variable):
    name, _, value = variable.partition("=")
    done = run(MPIRUN, "-n", 2, sys.executable, "-c", CORES, **{name: value})
    assert done.stdout.split() == ["True"] * 2, done.stderr
    assert done.stderr.count(f"{variable} is not followed") == 1


def test_the_doctor_names_the_variable():
    done = run(MGWFBP, "doctor", OMP_PROC_BIND="spread")
    assert "OMP_PROC_BIND=spread: OpenMP would bind all ranks" in done.stdout, done.stderr
