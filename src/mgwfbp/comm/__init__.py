"""Ranks, transports, the comm thread and the all-reduce benchmark. Importing it starts MPI."""

from mgwfbp.comm.agree import agree
from mgwfbp.comm.benchmark import measure_all_reduce, network_of
from mgwfbp.comm.choose import cuda_support
from mgwfbp.comm.devices import choose_device, devices_here, placements, use_own_device, visible_devices
from mgwfbp.comm.emulated import EmulatedTransport
from mgwfbp.comm.network import measure_again, open_transport, own_transport, table_of
from mgwfbp.comm.sleep import sharpen_sleeps, sleep_until
from mgwfbp.comm.thread import Alone, Comm, CommThread, Sent, open_comm
from mgwfbp.comm.transport import HostTransport, Transport, poll_interval_s
from mgwfbp.comm.world import World

__all__ = [
    "Alone",
    "Comm",
    "CommThread",
    "EmulatedTransport",
    "HostTransport",
    "Sent",
    "Transport",
    "World",
    "agree",
    "choose_device",
    "cuda_support",
    "devices_here",
    "measure_again",
    "measure_all_reduce",
    "network_of",
    "open_comm",
    "open_transport",
    "own_transport",
    "placements",
    "poll_interval_s",
    "sharpen_sleeps",
    "sleep_until",
    "table_of",
    "use_own_device",
    "visible_devices",
]
