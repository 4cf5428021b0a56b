"""Readers of public measurement logs: B-Caffe's layer times; OSU's, NCCL's and Intel's (IMB) all-reduce times.

Each takes the text of a log and gives a workload or the object of a NETWORK file. Lines that belong to the log's format
but are damaged raise UserError with the line's number; lines of other programs between them are skipped.
"""

from mgwfbp.simulate.logs.bcaffe import bcaffe_workload
from mgwfbp.simulate.logs.imb import imb_network
from mgwfbp.simulate.logs.kinds import KINDS, Kind, log_kind
from mgwfbp.simulate.logs.nccl import nccl_network
from mgwfbp.simulate.logs.osu import osu_network
from mgwfbp.simulate.logs.sweeps import MOST_STARTUP_NBYTES, startup_beyond
from mgwfbp.simulate.logs.text import read_log

__all__ = [
    "KINDS",
    "MOST_STARTUP_NBYTES",
    "Kind",
    "bcaffe_workload",
    "imb_network",
    "log_kind",
    "nccl_network",
    "osu_network",
    "read_log",
    "startup_beyond",
]
