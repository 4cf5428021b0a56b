"""Importers: on the real logs where they are at hand, on logs written here in every known form, and on damaged ones."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgwfbp.errors import UserError
from mgwfbp.simulate.logs import bcaffe_workload, nccl_network, osu_network, read_log
from mgwfbp.simulate.specs import workload_from_spec

LOGS = Path(__file__).resolve().parents[2] / "shared" / "data" / "bcaffe-k80"
needs_logs = pytest.mark.skipif(not LOGS.exists(), reason="the public B-Caffe logs are not here")


def tensor_line(fields):
    return f"I0219 13:29:27.119763 66221 distributed.cpp:112] [{fields}]"


def block(rows):
    return [tensor_line(f"{i}, {elements}, {us}, 7, 0") for i, (elements, us) in enumerate(rows)]


ZEROS, TIMES = [(9408, 0), (64, 0), (4096, 0)], [(9408, 150.5), (64, 150.5), (4096, 38)]


@needs_logs
def test_the_reference_trace():
    work = bcaffe_workload(read_log(str(LOGS / "tmp8comm.log")), "tmp8comm.log")
    assert len(work.layers) == 64
    assert sum(layer.parameters for layer in work.layers) == 13_379_136
    assert work.nbytes == 4 * 13_379_136
    assert work.backward_s == pytest.approx(0.205334312)
    assert work.forward_s == pytest.approx(work.backward_s / 2)
    assert "block 2" in work.source
    shipped = workload_from_spec("k80-googlenet")
    assert [layer.backward_s for layer in shipped.layers] == pytest.approx([layer.backward_s for layer in work.layers])
    assert [layer.nbytes for layer in shipped.layers] == [layer.nbytes for layer in work.layers]
    assert sum(layer.parameters for layer in shipped.layers) == 13_378_280


@needs_logs
@pytest.mark.parametrize("path", sorted(LOGS.glob("tmp*comm.log")), ids=lambda path: path.name)
def test_every_public_trace(path):
    work = bcaffe_workload(read_log(str(path)), path.name)
    assert len(work.layers) == 64
    assert work.backward_s > 0.1


@needs_logs
@pytest.mark.parametrize(("nodes", "a", "b"), [(2, 102e-6, 1.66e-9), (4, 225e-6, 2.07e-9), (8, 711e-6, 3.51e-9)])
def test_every_public_osu_log(nodes, a, b):
    network = osu_network(read_log(str(LOGS / f"allreduce{nodes}.log")), "log", ranks=nodes)
    assert network["ranks"] == nodes
    assert network["a_s"] == pytest.approx(a, rel=0.005)
    assert network["b_s_per_byte"] == pytest.approx(b, rel=0.005)
    assert network["nbytes"][-1] == 2**20


def test_bcaffe_layers_blocks_and_shares():
    text = "\n".join(["noise of another file", *block(ZEROS), "I0219 solver.cpp:33] Iteration 5", *block(TIMES)])
    work = bcaffe_workload(text, "x.log", forward_share=0.25, batch_size=32)
    assert [(layer.name, layer.nbytes) for layer in work.layers] == [("param 2", 4 * 4096), ("param 0+1", 4 * 9472)]
    assert [layer.backward_s for layer in work.layers] == pytest.approx([38e-6, 150.5e-6])
    assert work.forward_s == pytest.approx(0.25 * 188.5e-6)
    assert work.batch_size == 32
    assert bcaffe_workload(text, "x.log", block=1).backward_s == 0
    windows = text.replace("\n", "\r\n")
    assert bcaffe_workload(windows, "x.log", forward_share=0.25, batch_size=32) == work


@pytest.mark.parametrize(
    ("lines", "options", "says"),
    [
        ([], {}, "holds no line"),
        (["hello"], {}, "holds no line"),
        (block(ZEROS), {}, "all times are zero in its 1 block"),
        (block(TIMES), {"block": 2}, "has 1 block.s., --block 2"),
        ([*block(TIMES), *block(TIMES)[:2]], {}, ".*the log is cut off"),
        (block(TIMES)[1:], {}, "line 1: tensor 1 where 0 was expected"),
        ([*block(TIMES)[:1], *block(TIMES)[2:]], {}, "line 2: tensor 2 where 1 was expected"),
        ([tensor_line("0, 64, 1.5")], {}, "line 1: needs"),
        ([tensor_line("0, 64, 1, 1, 0, 9")], {}, "line 1: needs"),
        ([tensor_line("0, 64, -1, 7, 0")], {}, "line 1: a number ≥ 0 was expected, found '-1'"),
        (["", tensor_line("0, 6.5, 1, 7, 0")], {}, "line 2: a whole number"),
        ([tensor_line("0, 64, nan, 7, 0")], {}, "line 1: a number"),
        ([tensor_line("0, many, 1, 7, 0")], {}, "line 1: a whole number"),
        (["x distributed.cpp:112] [0, 64, 1"], {}, "line 1: needs"),
    ],
)
def test_damaged_bcaffe_logs(lines, options, says):
    with pytest.raises(UserError, match=f"^x.log: {says}"):
        bcaffe_workload("\n".join(lines), "x.log", **options)


OSU_OLD = "# OSU MPI Allreduce Latency Test v5.4.0\n# Size       Avg Latency(us)\n4   54.50\n8   50.36\n1024   99\n"
OSU_RANKS = "# Size  Avg\n8,4    82.28\n8,8    68.72\n8,1024   99\n"
OSU_NEW = """
# OSU MPI Allreduce Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations        P50
4   54.50   50.0   60.0    1000   53.1
8   50.36   49.0   51.0    1000   50.0

1024   99   90    110  1000   98
[warn] something of the launcher's
"""


@pytest.mark.parametrize(("text", "ranks"), [(OSU_OLD, None), (OSU_RANKS, 8), (OSU_NEW, None)])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_osu_formats(text, ranks, ends):
    network = osu_network(text.replace("\n", ends), "osu.log")
    assert network["ranks"] == ranks
    assert network["nbytes"] == [4, 8, 1024]
    assert network["seconds"][-1] == pytest.approx(99e-6)
    assert osu_network(text, "osu.log", ranks=16)["ranks"] == 16


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds 0 measured size"),
        ("# only a heading\n", "holds 0 measured size"),
        ("4 1.0\n", "holds 1 measured size"),
        ("4 1.0\n4 1.0\n", "holds 1 measured size"),
        ("4 1.0\n8\n", "line 2: needs a size and a latency"),
        ("4 1.0\n8 fast\n", "line 2: a number"),
        ("4 1.0\n8 -2\n", "line 2: a number ≥ 0"),
        ("4 1.0\n-8 2\n", "line 2: a whole number ≥ 0"),
        ("4 1.0\n8,8,8 2\n", "line 2: needs a size"),
        ("4 1.0\n8x8 2\n", "line 2: a whole number"),
    ],
)
def test_damaged_osu_logs(text, says):
    with pytest.raises(UserError, match=f"^osu.log: {says}"):
        osu_network(text, "osu.log")


NCCL = """# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20
# Using devices
#  Rank  0 Group  0 Pid   1234 on   node1 device  0 [0x07] NVIDIA A100
#  Rank  1 Group  0 Pid   1235 on   node1 device  1 [0x08] NVIDIA A100
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    11.00    0.00    0.00      0    10.00    0.00    0.00      0
        1024           256     float     sum      -1    13.00    0.08    0.08      0    12.00    0.09    0.09      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.0423
"""


def test_nccl_in_place_times_and_ranks():
    network = nccl_network(NCCL, "nccl.log")
    assert network["ranks"] == 2
    assert network["nbytes"] == [8, 1024]
    assert network["seconds"] == pytest.approx([10e-6, 12e-6])


def test_nccl_of_older_versions_has_other_columns():
    old = """#    size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
           8             2     float     sum    11.00    0.00    0.00  0e+00    10.00    0.00    0.00  0e+00
        1024           256     float     sum    13.00    0.08    0.08  0e+00    12.00    0.09    0.09  0e+00
"""
    network = nccl_network(old, "nccl.log")
    assert network["seconds"] == pytest.approx([10e-6, 12e-6])
    assert network["ranks"] is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds 0 measured size"),
        ("8 2 float sum -1 11 0 0 0 10 0 0 0", "line 1: no heading"),
        (NCCL.replace("   10.00    0.00    0.00      0", ""), "line 9: 9 columns, the time is expected in column 10"),
        (NCCL.replace("10.00", "N/A"), "line 9: a number ≥ 0 was expected, found 'N/A'"),
    ],
)
def test_damaged_nccl_logs(text, says):
    with pytest.raises(UserError, match=f"^nccl.log: {says}"):
        nccl_network(text, "nccl.log")


def test_what_is_no_log_at_all(tmp_path):
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "zeros").write_bytes(b"\0" * 100)
    for name, says in (
        ("binary", "not a text file"),
        ("zeros", "not a text file"),
        ("none", "cannot be read"),
        (".", "read"),
    ):
        with pytest.raises(UserError, match=says):
            read_log(str(tmp_path / name))


def test_a_long_log_is_read_in_seconds():
    rows = "\n".join(f"{4 * (i + 1)} {10 + i * 1e-3:.3f}" for i in range(2 * 10**5))
    began = time.monotonic()
    network = osu_network(rows, "osu.log")
    assert len(network["nbytes"]) == 2 * 10**5
    assert network["b_s_per_byte"] == pytest.approx(1e-9 / 4, rel=1e-3)
    noise = "\n".join(["I0219 solver.cpp:33] Iteration"] * 2 * 10**4 + block(TIMES))
    assert len(bcaffe_workload(noise, "x.log").layers) == 2
    assert time.monotonic() - began < 30


@given(st.text(alphabet=" 0123456789,.-[]#\n\tedistrbucp:/x", max_size=200))
@pytest.mark.parametrize("reader", [bcaffe_workload, osu_network, nccl_network])
def test_any_text_is_read_or_refused(reader, text):
    with contextlib.suppress(UserError):
        reader("x distributed.cpp:112] [0, 64, 1, 1]\n" + text, "x.log")
