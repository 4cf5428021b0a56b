"""The doctor: what it finds here, and what it would find on machines that are not here."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mgwfbp.bench.doctor import NOTE, OK, PROBLEM, gpus, launcher, sums
from mgwfbp.comm import device_check
from mgwfbp.schedule import Network
from tests.test_cli import MGWFBP, MPIRUN, needs_mpirun, run

ROOT = Path(__file__).resolve().parents[1]


def test_alone_it_says_what_there_is():
    done = run(MGWFBP, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    for topic in ("versions", "MPI", "launcher", "cores", "BLAS", "kernels", "GPUs", "all-reduce"):
        assert any(line.split(maxsplit=1)[1].startswith(topic) for line in done.stdout.splitlines()), topic
    assert "no launcher: 1 rank on 1 machine" in done.stdout
    assert "one rank sends nothing, so the network was not tried" in done.stdout
    assert "mpirun -n 2 mgwfbp doctor" in done.stdout
    assert "MB/s" not in done.stdout


@needs_mpirun
def test_two_ranks_give_one_report():
    done = run(MPIRUN, "-n", 2, MGWFBP, "doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["ranks"] == 2
    assert {finding["level"] for finding in report["findings"]} <= {OK, NOTE}
    texts = {finding["topic"]: finding["text"] for finding in report["findings"]}
    assert "2 ranks on 1 machine" in texts["launcher"]
    assert "the sum is right" in texts["all-reduce"]
    assert texts["sums"].startswith("summed by ")


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "no launcher"),
        ({"PMI_SIZE": "2", "PMI_RANK": "0"}, "mpirun (hydra)"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "SLURM_STEP_NUM_TASKS": "2"}, "srun (pmi2)"),
        ({"HYDI_CONTROL_FD": "9", "PMI_SIZE": "2", "SLURM_STEP_NUM_TASKS": "2"}, "mpirun (hydra)"),
        ({"PMIX_RANK": "0", "SLURM_STEP_NUM_TASKS": "2"}, "srun (pmix)"),
        ({"SLURM_STEP_NUM_TASKS": "2"}, "srun (no process manager)"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "0"}, "Open MPI's mpirun"),
    ],
)
def test_who_started_us(environment, name):
    assert launcher(environment) == name


BROKEN = """
import os, sys
from tests.streams_on_host import in_place_of_cupy
cupy = in_place_of_cupy()
def arange(*arguments, **options):
    {body}
cupy.arange = arange
print("a banner of the driver")
sys.modules["cupy"] = cupy
"""


@pytest.mark.parametrize(
    ("body", "works", "error"),
    [
        (None, True, None),
        ("os.kill(os.getpid(), 11)", False, "the process died of signal 11"),
        pytest.param("raise RuntimeError('out of cards')", False, "RuntimeError: out of cards", marks=pytest.mark.all),
        pytest.param("sys.exit(3)", False, "it ended with exit code 3", marks=pytest.mark.all),
        ("print('{}'); sys.exit(0)", False, "what arrived was not what was sent"),
        ("print('[1]'); return cupy.zeros(*arguments, **options)", True, None),
    ],
)
def test_a_device_check_that_dies_is_a_finding(tmp_path, monkeypatch, body, works, error):
    folder = tmp_path if body else ROOT / "tests/stand_in"
    if body:
        (tmp_path / "cupy.py").write_text(BROKEN.format(body=body))
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT}")
    monkeypatch.setenv("PMI_RANK", "0")  # a launcher's: the check must be a world of its own
    found = device_check(1)
    assert found["works"] == works, found
    assert found.get("error") == error
    assert found["gpu"] == "Stand-in"


def test_the_doctor_tries_the_cards_that_there_are(monkeypatch):
    """Two cards, as far as it can tell, and no cuDNN: which is a problem, as nobody would see it otherwise."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'tests/stand_in'}{os.pathsep}{ROOT}")
    done = run(MGWFBP, "doctor")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "rank 0: Stand-in, driver 13000: device memory in MPI works" in done.stdout
    assert (
        "rank 0: CuPy stand-in, cuDNN cannot be used (No module named 'cudnn'); convolutions are im2col" in done.stdout
    )
    assert "pip install 'mgwfbp[cuda13]'" in done.stdout


def facts(*visible, device=None, reason=None, loaded=None):
    about = {"host": "n1", "cupy": reason, "device": device, "set": loaded}
    return [{**about, "visible": devices} for devices in visible]


LOADS = {"works": True, "about": "cuDNN 92801"}
IM2COL = {"works": False, "about": "cuDNN cannot be used (why); convolutions are im2col"}
WORKS, DIES = {"gpu": "C", "driver": 1, "works": True}, {"works": False, "error": "the process died of signal 11"}


def test_what_is_said_of_sums():
    sizes, fast = (256, 1024, 4096, 4194304), (1e-4, 1e-4, 1e-4, 1e-2)
    slow = {"mpi": (1e-4, 1e-4, 1e-4, 2.2e-2), "direct": (3e-4, 3e-4, 3e-4, 1e-2)}
    network = Network("", 2, sizes, fast, 0.0, 0.0, 1.0, None, None, ("mpi", "mpi", "mpi", "direct"), slow)
    found = sums(network)
    assert found.level == NOTE
    assert found.text == (
        "summed by mpi to 4.1 kB, direct above it; 4 kB in 0.10 ms, 4 MB in 10.00 ms; "
        "the library's own sum takes 2.2 times as long at 4 MB"
    )
    quick = Network("", 2, sizes, fast, 0.0, 0.0, 1.0, None, None, ("mpi",) * 4, {"mpi": fast, "direct": fast})
    assert sums(quick).level == OK


def test_an_open_mpi_that_was_compiled_with_cuda_and_runs_without_is_no_problem():
    """auto goes through the host there, so nothing is lost."""
    found = gpus(facts(("a",), device=DIES), True, "Open MPI")
    assert [finding.level for finding in found] == [OK, OK]


@pytest.mark.parametrize(
    ("everyone", "cuda", "levels", "says"),
    [
        (facts((), (), reason="CuPy is not installed"), None, [NOTE], "none that CuPy can use"),
        (facts(("0",), reason="CuPy finds no GPU"), None, [NOTE], "though CUDA_VISIBLE_DEVICES names 0"),
        (facts(("a", "b"), ("a", "b"), device=WORKS), True, [OK, OK], "n1: local ranks use devices 0, 1"),
        (facts(("a",), ("a",), device=WORKS), True, [PROBLEM, OK], "2 ranks on this machine, but 1 GPU"),
        (facts(("a",), device=DIES), True, [OK, PROBLEM], "was promised, but the process died of signal 11"),
        (facts(("a",), device=WORKS, loaded=LOADS), None, [OK, OK, OK], "cuDNN 92801: a convolution is right"),
        (
            facts(("a",), device=WORKS, loaded=IM2COL),
            None,
            [OK, OK, PROBLEM],
            "rank 0: cuDNN cannot be used (why); con",
        ),
        (facts(("a",), device=WORKS, loaded=DIES), None, [OK, OK, PROBLEM], "rank 0: the process died of signal 11"),
        (facts(("a",), device=DIES), False, [OK, OK], "does not work (the process died of signal 11); it is not used"),
    ],
)
def test_what_is_said_of_gpus(everyone, cuda, levels, says):
    found = gpus(everyone, cuda)
    assert [finding.level for finding in found] == levels
    assert any(says in finding.text for finding in found)
    assert all(finding.advice for finding in found if finding.level == PROBLEM)
