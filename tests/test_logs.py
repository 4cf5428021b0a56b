"""Importers: on the real logs where they are at hand, on logs written here in every known form, and on damaged ones."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mgwfbp.cli.import_ import command
from mgwfbp.errors import UserError
from mgwfbp.simulate.logs import bcaffe_workload, imb_network, log_kind, nccl_network, osu_network, read_log
from mgwfbp.simulate.specs import cost_from_dict, cost_from_spec, workload_from_spec

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
LOGS, HABITS = SHARED / "bcaffe-k80", SHARED / "logs"
needs_logs = pytest.mark.skipif(not LOGS.exists(), reason="the public B-Caffe logs are not here")
needs_habits = pytest.mark.skipif(not HABITS.exists(), reason="the logs with the habits of real ones are not here")


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


def microseconds(network):
    return [pytest.approx(seconds * 1e6) for seconds in network["seconds"]]


FIVE, FOUR = [1024, 8192, 65536, 524288, 4194304], [4, 1024, 65536, 1048576]


@needs_habits
@pytest.mark.parametrize(
    ("name", "ranks", "sizes", "times"),
    [
        ("nccl-tagged.log", 2, FIVE, [20, 24, 48, 240, 1600]),
        ("nccl-digit-host.log", 2, FIVE, [20, 24, 48, 240, 1600]),
        ("nccl-warning-frame.log", 2, FIVE, [20, 24, 48, 240, 1600]),
        ("nccl-rank-prefix.log", None, FIVE, [20, 24, 48, 240, 1600]),
        ("nccl-rows-split.log", None, FIVE, [20, 24, 48, 240, 1600]),
        (
            "nccl-large-sizes-only.log",
            2,
            [2**22 * 2**i for i in range(6)],
            [868.9, 1707.7, 3385.4, 6740.9, 13451.8, 26873.5],
        ),
        ("osu-iallreduce.txt", None, [4, 64, 4096, 65536], [50, 51, 70, 240]),
        ("osu-several-tests.log", None, FOUR, [31, 40, 210, 1900]),
        ("osu-warning-frame.txt", None, FOUR, [31, 40, 210, 1900]),
        ("imb-allreduce.txt", 16, [4, 4096, 65536, 1048576], [6, 16, 110, 1500]),
    ],
)
def test_logs_as_people_have_them(name, ranks, sizes, times):
    text = read_log(str(HABITS / name))
    reader = READERS[log_kind(text, name).command]
    network = reader(text, name)
    assert network["ranks"] == ranks
    assert network["nbytes"] == sizes
    assert microseconds(network) == times


@needs_habits
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nccl-alltoall-sendrecv.log", "holds alltoall_perf, sendrecv_perf, no all-reduce"),
        ("nccl-two-worlds.log", "line 9: rank 0 stands twice: the launcher started separate worlds"),
    ],
)
def test_logs_as_people_have_them_that_must_be_refused(name, says):
    with pytest.raises(UserError, match=f"^{name}: {says}"):
        nccl_network(read_log(str(HABITS / name)), name)


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
OSU_NON_BLOCKING = """
# OSU MPI-CUDA Non-blocking Allreduce Latency Test v7.5
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)
4      111.0   56.00   54.50   0.00
8      107.0   56.00   50.36   0.00
1024   160.0   60.00   99.00   1.00
"""
OSU_BANDWIDTH = "# OSU MPI Bandwidth Test v5.8\n# Size      Bandwidth (MB/s)\n4   0.15\n8   110.00\n1024   1200.00\n"
OSU_BARRIER = "# OSU MPI Barrier Latency Test v5.8\n# Avg Latency(us)\n            12.57\n"


@pytest.mark.parametrize(
    ("text", "ranks"), [(OSU_OLD, None), (OSU_RANKS, 8), (OSU_NEW, None), (OSU_NON_BLOCKING, None)]
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_osu_formats(text, ranks, ends):
    network = osu_network(text.replace("\n", ends), "osu.log")
    assert network["ranks"] == ranks
    assert network["nbytes"] == [4, 8, 1024]
    assert microseconds(network) == [54.5 if ranks is None else 82.28, 50.36 if ranks is None else 68.72, 99]
    assert osu_network(text, "osu.log", ranks=ranks or 16)["ranks"] == (ranks or 16)


@pytest.mark.parametrize(
    "text",
    [
        OSU_BANDWIDTH + OSU_BARRIER + OSU_OLD,
        OSU_OLD + OSU_BARRIER + OSU_BANDWIDTH,
        OSU_NON_BLOCKING.replace("54.50", "154.50") + OSU_OLD,
        "# Size      Bandwidth (MB/s)\n4   0.15\n8   110.00\n" + OSU_OLD,
        "2 16\nstarted on 2 nodes\n" + OSU_OLD,
        "16\n" + OSU_OLD,
        OSU_OLD.replace("54.50", "\x1b[1m54.50\x1b[0m"),
        OSU_OLD.replace("Allreduce", "Iallreduce").replace("Avg Latency(us)", "Pure Comm.(us)"),
        OSU_OLD.replace("       Avg", " Avg"),
    ],
)
def test_osu_only_the_all_reduce_counts(text):
    assert microseconds(osu_network(text, "osu.log")) == [54.5, 50.36, 99]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds 0 measured size"),
        ("# only a heading\n", "holds 0 measured size"),
        ("4 1.0\n", "holds 1 measured size"),
        ("4 1.0\n4 1.0\n", "holds 1 measured size"),
        ("4 1.0\n8\n", "line 2: needs a size and a latency"),
        ("4 1.0\n8 fast\n", "line 2: a number"),
        ("4 1.0\n8 N/A\n", "line 2: a number"),
        ("4 1.0\n8 -2\n", "line 2: a number ≥ 0"),
        ("4 1.0\n-8 2\n", "line 2: a whole number ≥ 0"),
        ("4 1.0\n8,8,8 2\n", "line 2: needs a size"),
        ("4 1.0\n8x8 2\n", "line 2: a whole number"),
        ("4 1.0\n0,8 2\n", "line 2: an all-reduce between 0 ranks"),
        ("4 1.0\n16 2.0\n8 3.0\n", "line 3: 8 bytes after 16, but sizes ascend"),
        ("4 1\n4 2\n8 1\n8 2\n", "line 4: 8 bytes after 8, but sizes ascend in a table: .*separate worlds"),
        (OSU_NEW.replace("49.0 ", ""), "line 6: 5 columns, its heading has 6"),
        (OSU_OLD + "2048 99node-a:497 [0] NCCL INFO\n", "line 6: .* columns, its heading has 2"),
        (OSU_BANDWIDTH + OSU_BARRIER, "holds OSU MPI Bandwidth Test v5.8, OSU MPI Barrier Latency Test v5.8, no all-"),
        (OSU_BANDWIDTH.split("\n", 1)[1], "holds Size Bandwidth .MB/s., no all-reduce"),
        (OSU_NON_BLOCKING.replace("Pure Comm.(us)", "Something(us)"), "line 5: .* no column 'Pure Comm..us.'"),
        (OSU_NON_BLOCKING.replace("# Size", "#"), "holds 0 measured size"),
        (OSU_OLD + OSU_OLD, "holds 2 tables and does not say of how many ranks each is; .*--ranks N"),
        (OSU_OLD + OSU_RANKS, "holds rows of 8 ranks and rows that do not say"),
        ("4,8 1\n4,16 1\n8 2\n16 2\n", "holds rows of 4 ranks and rows that do not say"),
        ("4,8 1\n4,16 1\n8,8 2\n", "holds 1 measured size.s. between 8 ranks"),
    ],
)
def test_damaged_osu_logs(text, says):
    with pytest.raises(UserError, match=f"^osu.log: {says}"):
        osu_network(text, "osu.log")


def test_rows_of_several_rank_counts_are_not_averaged():
    text = "4,8 8\n8,8 80\n4,1024 10\n8,1024 100\n"
    found = osu_network(text, "osu.log")
    assert [network["ranks"] for network in found["networks"]] == [4, 8]
    assert [microseconds(network) for network in found["networks"]] == [[8, 10], [80, 100]]
    assert osu_network(text, "osu.log", ranks=8) == found["networks"][1]
    with pytest.raises(UserError, match="osu.log: is of 4, 8 ranks, --ranks 16 is not among them"):
        osu_network(text, "osu.log", ranks=16)


def test_tables_of_the_same_ranks_count_by_their_mean():
    twice = OSU_OLD + OSU_OLD.replace("99", "101").replace("54.50", "64.50")
    assert microseconds(osu_network(twice, "osu.log", ranks=4)) == [59.5, 50.36, 100]
    assert microseconds(osu_network(OSU_RANKS + OSU_RANKS.replace("99", "101"), "osu.log")) == [82.28, 68.72, 100]


def test_a_second_run_may_begin_at_another_size():
    smaller = "# Size  Avg\n2   40.00\n1024   101\n"
    assert microseconds(osu_network(OSU_OLD + smaller, "osu.log", ranks=4)) == [40, 54.5, 50.36, 100]
    both = NCCL + NCCL.replace("    8             2", "    4             1")
    assert nccl_network(both, "nccl.log")["nbytes"] == [4, 8, 1024]


NCCL = """# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20
# Using devices
#  Rank  0 Group  0 Pid   1234 on   node1 device  0 [0x07] NVIDIA A100
#  Rank  1 Group  0 Pid   1235 on   node1 device  1 [0x08] NVIDIA A100
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    11.00    0.00    0.00      0    10.00    0.00    0.00      0
        1024           256     float     sum      -1    13.00    0.08    0.08      0    12.00    0.09    0.09    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.0423
"""
NCCL_RANKS, NCCL_TABLE = "".join(NCCL.splitlines(True)[1:4]), "".join(NCCL.splitlines(True)[4:])
FOUR_RANKS = NCCL_RANKS + "".join(f"#  Rank  {i} Group  0 Pid   1236 on   node2 device  0 [0x07]\n" for i in (2, 3))
NCCL_IN_PIECES = NCCL.replace(
    "-1  ", "-1node-a:4:97 [0] NCCL INFO 8 Bytes -> Algo 0 time 25.2\nnode-a:4:97 INFO 3\n"
).replace("  0  ", "  07f00aa:4:97 [0] NCCL INFO 8 Bytes -> Algo 0 time 25.2\n   ")


@pytest.mark.parametrize(
    "text",
    [
        NCCL,
        NCCL.replace("#  ", "   ").replace("# ", "  "),  # a page that took the # for markup
        NCCL_IN_PIECES,
        "+ mpirun -n 2 build/all_reduce_perf -b 8\n" + NCCL,
        "# Collective test starting: all_reduce_perf\n" + NCCL + "# Collective test concluded: all_reduce_perf\n",
        NCCL + NCCL_RANKS + NCCL_TABLE,
        NCCL + "# Collective test starting: all_gather_perf\n" + NCCL.replace("12.00", "99.00"),
        NCCL + NCCL.replace("float", "int32").replace("12.00", "99.00"),
        NCCL + NCCL.replace("  sum", " none").replace("12.00", "99.00"),
        NCCL + NCCL.replace("-1", " 0").replace("12.00", "99.00"),
    ],
)
def test_nccl_times_and_ranks(text):
    network = nccl_network(text, "nccl.log")
    assert network["ranks"] == 2
    assert network["nbytes"] == [8, 1024]
    assert microseconds(network) == [10, 12]


def test_of_the_two_times_of_a_row_the_less_disturbed_counts():
    assert microseconds(nccl_network(NCCL.replace("13.00", "11.50"), "nccl.log")) == [10, 11.5]


def test_nccl_pieces_are_in_pieces():
    assert NCCL_IN_PIECES.count("NCCL INFO") == 4


def test_nccl_of_older_versions_has_other_columns():
    old = """#    size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
           8             2     float     sum    11.00    0.00    0.00  0e+00    10.00    0.00    0.00  0e+00
        1024           256     float     sum  1.3e+01    0.08    0.08  0e+00       12    0.09    0.09  0e+00
"""
    for text in (old, old.replace("size ", "bytes").replace("count", "    N")):
        network = nccl_network(text, "nccl.log")
        assert microseconds(network) == [10, 12]
        assert network["ranks"] is None
        assert nccl_network(text, "nccl.log", ranks=4)["ranks"] == 4


def test_nccl_jobs_of_several_sizes_in_one_log():
    text = NCCL + FOUR_RANKS + NCCL_TABLE.replace("12.00", "24.00").replace("13.00", "25.00")
    found = nccl_network(text, "nccl.log")
    assert [network["ranks"] for network in found["networks"]] == [2, 4]
    assert [microseconds(network) for network in found["networks"]] == [[10, 12], [10, 24]]
    assert nccl_network(text, "nccl.log", ranks=4) == found["networks"][1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds 0 measured size"),
        ("8 2 float sum -1 11 0 0 0 10 0 0 0", "line 1: no heading"),
        (NCCL.replace("   10.00    0.00    0.00      0", ""), "line 9: 9 columns, the time is expected in column 10"),
        (NCCL.replace("   12.00    0.09    0.09    N/A", ""), "line 10: 9 columns, the time is expected in column 10"),
        (NCCL.replace("12.00", "1x.00"), "line 10: 9 columns, the time is expected in column 10"),
        (NCCL.replace("10.00", "N/A"), "line 9: a number ≥ 0 was expected, found 'N/A'"),
        (NCCL.replace("1024      ", "24      "), "line 10: 256 elements of float are not 24 bytes"),
        (NCCL.replace("256 ", "128 "), "line 10: 128 elements of float are not 1024 bytes; .*reduce_scatter_perf"),
        (NCCL.replace(" 1024     ", " 10y4     "), "line 10: a size and a count were expected"),
        (NCCL.replace(" 1024     ", "          "), "line 10: a size and a count were expected"),
        (NCCL.replace("-1    13", "  x 13"), "line 10: the row is cut off behind its operation"),
        (NCCL.replace("busbw #wrong\n", "busbw\n"), "line 7: not the heading of an nccl-tests version"),
        (NCCL.replace("#  Rank  0", "#  Rank  2"), "line 9: rank 0 is missing"),
        (NCCL.replace("# Using devices", NCCL_RANKS), "line 6: rank 0 stands twice: .*separate worlds"),
        (NCCL_RANKS + NCCL, "line 6: rank 0 stands twice"),
        (NCCL_TABLE + NCCL_TABLE, "holds 2 tables and does not say of how many ranks"),
        (NCCL + NCCL_TABLE, "holds rows of 2 ranks and rows that do not say"),
        (NCCL.replace("  sum", " none"), "holds rows without a sum over all ranks .*, no all-reduce"),
        (NCCL.replace("-1", " 0"), "holds rows without a sum over all ranks .*, no all-reduce"),
        (
            NCCL.replace("  sum", "  max") + NCCL.replace("  sum", "  min"),
            "holds float max, float min, and no float sum",
        ),
        ("$ build/sendrecv_perf -b 8 -g 2\n" + NCCL, "holds sendrecv_perf, no all-reduce"),
        ("# Collective test starting: reduce_perf\n" + NCCL, "holds reduce_perf, no all-reduce"),
        (
            NCCL.replace(NCCL_RANKS, FOUR_RANKS).replace("0.09    0.09", "9.00    9.00"),
            "line 12: a bus bandwidth of 9 GB/s where the algorithm's is 9 is no all-reduce's",
        ),
    ],
)
def test_damaged_nccl_logs(text, says):
    with pytest.raises(UserError, match=f"^nccl.log: {says}"):
        nccl_network(text, "nccl.log")


def imb(benchmark, processes, rows, names="t_min[usec]  t_max[usec]  t_avg[usec]"):
    rule = "#" + "-" * 64
    table = "\n".join(f"{size:13} {1000:12} {rest}" for size, rest in rows)
    who = f"# Benchmarking {benchmark} \n# #processes = {processes} \n# ( 8 additional processes waiting )"
    return f"{rule}\n{who}\n{rule}\n       #bytes #repetitions  {names}\n{table}\n\n"


IMB_ROWS = [(0, "0.05 0.06 0.05"), (4, "5.00 7.00 6.00"), (4096, "14.00 18.00 16.00"), (65536, "100 120 110.00")]
IMB = "#    Intel(R) MPI Benchmarks 2021.3, MPI-1 part\n" + imb("Allreduce", 16, IMB_ROWS) + "# All processes end\n"
WRONG = [(4, "9 9 9"), (4096, "9 9 9"), (65536, "9 9 9")]
OVERLAPPED = [(4, "12.0 6.00 6.00 0.00"), (4096, "30.0 16.00 16.00 0.00"), (65536, "200.0 110.00 100.00 2.00")]
IMB_OVERLAPPED = imb("Iallreduce", 16, OVERLAPPED, "t_ovrl[usec] t_pure[usec]  t_CPU[usec]   overlap[%]")


@pytest.mark.parametrize(
    "text",
    [
        IMB,
        imb("Reduce", 16, WRONG) + IMB + imb("Multi-Allreduce", 16, WRONG) + imb("Barrier", 16, [], "t_min[usec]"),
        imb("Iallreduce_pure", 16, IMB_ROWS),
        IMB_OVERLAPPED,
        IMB_OVERLAPPED.replace("16.00 16.00", "99.00 16.00") + IMB,
        IMB.replace("65536", "65536 1 9 9 time-out.; Time limit is over\n65536"),
        IMB + imb("Allreduce", 16, [(4, "5.00 7.00 6.00"), (65536, "100 120 110.00")]),
    ],
)
def test_imb_formats(text):
    network = imb_network(text, "imb.txt")
    assert network["ranks"] == 16
    assert network["nbytes"] == [4, 4096, 65536]
    assert microseconds(network) == [6, 16, 110]


def test_imb_several_process_counts():
    found = imb_network(imb("Allreduce", 8, WRONG) + IMB, "imb.txt")
    assert [network["ranks"] for network in found["networks"]] == [8, 16]
    assert found["networks"][1] == imb_network(IMB, "imb.txt")
    assert imb_network(imb("Allreduce", 8, WRONG) + IMB, "imb.txt", ranks=16) == imb_network(IMB, "imb.txt")
    silent = IMB.replace("# #processes = 16", "")
    assert imb_network(silent, "imb.txt")["ranks"] is None
    assert imb_network(silent, "imb.txt", ranks=3)["ranks"] == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds 0 measured size"),
        (imb("Reduce", 16, WRONG), "holds Reduce, no all-reduce; give the output of IMB-MPI1 Allreduce"),
        (IMB.replace("t_avg[usec]", "t_mean[usec]"), "line 7: Allreduce's heading has no column 't_avg.usec.'"),
        (IMB.replace("= 16", "= many"), "line 4: a whole number ≥ 0 was expected"),
        (IMB.replace("= 16", "= 0"), "line 4: an all-reduce between 0 processes"),
        (IMB.replace("18.00 16.00", "16.00"), "line 10: 4 columns, its heading has 5"),
        (IMB.replace("16.00", "N/A"), "line 10: a number ≥ 0 was expected, found 'N/A'"),
        (IMB.replace("4096", "   2"), "line 10: 2 bytes after 4, but sizes ascend"),
        (IMB + IMB.replace("# #processes = 16", ""), "holds rows of 16 ranks and rows that do not say"),
        (IMB, "is of 16 ranks, --ranks 8 is not among them"),
    ],
)
def test_damaged_imb_logs(text, says):
    with pytest.raises(UserError, match=f"^imb.txt: {says}"):
        imb_network(text, "imb.txt", ranks=8 if text == IMB else None)


READERS = {"osu-log": osu_network, "nccl-log": nccl_network, "imb-log": imb_network}
PLAIN = {"osu-log": OSU_NEW, "nccl-log": NCCL, "imb-log": IMB}
PREFIXES = {
    "Open MPI": "[1,0]<stdout>:",
    "Open MPI 5": "[prterun-node-a-4242@1,0]<stdout>: ",
    "hydra": "[0] ",
    "srun": "0: ",
    "srun, padded": " {i:02}: ",
    "pdsh": "node-a: ",
    "a node with a number": "node17.cluster: ",
    "docker": "worker_1  | ",
    "kubectl": "[pod/launcher-x7k2/main] ",
    "time": "12:34:{i:02} ",
    "date": "2024-05-01T12:34:{i:02}.{i:06}Z ",
    "date in brackets": "[2024-05-01 12:34:{i:02}] ",
    "ts": "May 01 12:34:{i:02} ",
    "two of them": "[12:34:{i:02}] [1,0]<stdout>:",
    "colours": "\x1b[32m",
    "a quotation": "> ",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("kind", READERS)
def test_what_launchers_write_before_each_line_is_no_matter(kind, prefix):
    tagged = "\n".join(prefix.format(i=i) + line for i, line in enumerate(PLAIN[kind].splitlines()))
    assert READERS[kind](tagged, "x.log") == READERS[kind](PLAIN[kind], "x.log")
    assert READERS[kind](tagged.replace("\n", "\r\n"), "x.log") == READERS[kind](PLAIN[kind], "x.log")
    assert log_kind(tagged, "x.log").command == kind


def test_nccl_rows_in_pieces_with_a_tag_before_each():
    tagged = "\n".join(f"[0] {line}" for line in NCCL_TABLE.splitlines())
    tagged = tagged.replace("-1  ", "-1[0]  ").replace("  0  ", "  0[1,0]<stdout>:  ")
    assert microseconds(nccl_network(tagged, "x.log")) == [10, 12]
    below = "\n".join(f"node-a: {line}" for line in NCCL_IN_PIECES.splitlines())
    assert microseconds(nccl_network(below, "x.log")) == [10, 12]


CHATTER = """
7f00aa:195:195 [0] NCCL INFO Launch mode Parallel
[node-a:10558] 1 more process has sent a message
1 more process has sent a help message
2 total processes killed (some possibly by mpirun during cleanup)
--------------------------------------------------------------------------
2024-05-01 12:00:00 starting
real\t0m5.711s
#
"""


@pytest.mark.parametrize("kind", READERS)
def test_chatter_between_any_two_lines_is_no_matter(kind):
    full = "".join(CHATTER + line + "\n" for line in PLAIN[kind].splitlines()) + CHATTER
    assert READERS[kind](full, "x.log") == READERS[kind](PLAIN[kind], "x.log")


LARGE = "".join(f"{2**20 * 2**i}   {30 + 2e-4 * 2**20 * 2**i:.2f}\n" for i in range(2, 8))


def test_a_log_of_large_sizes_does_not_say_what_small_ones_cost(tmp_path):
    (tmp_path / "large.log").write_text(OSU_OLD.split("4  ")[0] + LARGE)
    output = str(tmp_path / "n.json")
    done = imported("osu-log", tmp_path / "large.log", output, "--ranks", "2")
    assert f"{output}: nothing below 4,194,304 bytes was measured; smaller messages are taken by the line" in done
    assert "from 30.0 µs at 0 bytes to 868.9 µs there" in done
    assert "below 4194304 bytes by the line" in json.loads(Path(output).read_text())["source"]
    cost = cost_from_spec(output)
    assert [cost(size) for size in (0, 1024, 2**21)] == pytest.approx([30e-6, 30.2048e-6, 449.43e-6], rel=1e-3)
    (tmp_path / "small.log").write_text(OSU_OLD)
    assert "by the line" not in imported("osu-log", tmp_path / "small.log", output)


def test_large_sizes_whose_line_leaves_nothing_for_the_start_up_are_refused():
    proportional = "".join(f"{2**i} {2**i * 1e-4:.3f}\n" for i in range(22, 26))
    with pytest.raises(UserError, match="osu.log: the smallest size is 4,194,304 bytes, .* measure smaller sizes, too"):
        osu_network(proportional, "osu.log")
    small = "".join(f"{2**i} {2**i * 1e-4:.3f}\n" for i in range(10, 26))
    assert osu_network(small, "osu.log")["nbytes"][0] == 1024


def imported(command_name, log, output, *options):
    done = CliRunner().invoke(command, [command_name, str(log), "-o", output, *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("kind", ["bcaffe-log", *READERS])
def test_auto_finds_the_kind_and_does_as_its_command(tmp_path, kind):
    text = {**PLAIN, "bcaffe-log": "\n".join(block(TIMES))}[kind]
    (tmp_path / "x.log").write_text(text)
    by_name = imported(kind, tmp_path / "x.log", str(tmp_path / "one.json"))
    by_itself = imported("auto", tmp_path / "x.log", str(tmp_path / "two.json"))
    first, rest = by_itself.split("\n", 1)
    assert first.endswith(f"read as by mgwfbp import {kind}")
    assert rest == by_name.replace("one.json", "two.json")
    assert (tmp_path / "two.json").read_text() == (tmp_path / "one.json").read_text()


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (
            "Iteration 1, loss 2.3\n4 5.0\n",
            [],
            "no log of a known kind; there are B-Caffe .* OSU .* nccl-tests .* Intel",
        ),
        (OSU_OLD + NCCL, [], "is OSU .* and nccl-tests log in one; .* mgwfbp import osu-log or mgwfbp import nccl-log"),
        ("\n".join(block(TIMES)), ["--ranks", "2"], "is a B-Caffe .* leave --ranks out"),
    ],
)
def test_auto_says_what_it_cannot_read(tmp_path, text, options, says):
    (tmp_path / "x.log").write_text(text)
    with pytest.raises(UserError, match=rf"x\.log: {says}"):
        imported("auto", tmp_path / "x.log", str(tmp_path / "n.json"), *options)
    assert not (tmp_path / "n.json").exists()


def test_what_import_prints_of_the_ranks(tmp_path):
    output = str(tmp_path / "n.json")
    (tmp_path / "x.log").write_text(NCCL_TABLE)
    assert f"{output}: ranks not known (--ranks N says them), 2 sizes, " in imported(
        "nccl-log", tmp_path / "x.log", output
    )
    assert f"{output}: 6 ranks, 2 sizes, " in imported("nccl-log", tmp_path / "x.log", output, "--ranks", "6")
    (tmp_path / "x.log").write_text(imb("Allreduce", 8, WRONG) + IMB)
    both = imported("imb-log", tmp_path / "x.log", output)
    assert [line.split(",")[0] for line in both.splitlines()] == [
        f"{output}: 8 ranks",
        f"{output}: 16 ranks",
        f"{output}: 2 networks; say which",
    ]
    networks = json.loads(Path(output).read_text())["networks"]
    assert cost_from_spec(f"{output}:8") == cost_from_dict(networks[0], "") != cost_from_dict(networks[1], "")


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


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_logs_of_any_encoding(tmp_path, encoding):
    (tmp_path / "x.log").write_bytes(("# naïve chatter\r\n" + OSU_OLD).encode(encoding))
    assert osu_network(read_log(str(tmp_path / "x.log")), "x.log") == osu_network(OSU_OLD, "x.log")


def test_a_long_log_is_read_in_seconds():
    rows = "\n".join(f"{4 * (i + 1)} {10 + i * 1e-3:.3f}" for i in range(2 * 10**5))
    began = time.monotonic()
    network = osu_network(rows, "osu.log")
    assert len(network["nbytes"]) == 2 * 10**5
    assert network["b_s_per_byte"] == pytest.approx(1e-9 / 4, rel=1e-3)
    noise = "\n".join(["I0219 solver.cpp:33] Iteration"] * 2 * 10**4 + block(TIMES))
    assert len(bcaffe_workload(noise, "x.log").layers) == 2
    assert time.monotonic() - began < 30


ROWS = {
    bcaffe_workload: ("x distributed.cpp:112] [0, 64, 1, 1]\n", ""),
    osu_network: (OSU_OLD, "# Size  Avg\n"),
    nccl_network: (NCCL, "    1024   256   float   sum   -1 "),
    imb_network: (IMB, ""),
}


@given(st.text(alphabet=" 0123456789,.-[]#\n\tedistrbucp:/x", max_size=200))
@pytest.mark.parametrize("reader", ROWS)
def test_any_text_is_read_or_refused(reader, text):
    before, between = ROWS[reader]
    with contextlib.suppress(UserError):
        reader(before + text + between + text, "x.log")
