"""Ranks, transports, the comm thread and the all-reduce benchmark. Importing it loads MPI; a World starts it."""

from mgwfbp.comm.agree import agree, share_weights
from mgwfbp.comm.child import device_check, in_a_process
from mgwfbp.comm.gpus import choose_device, devices_here, placements, use_own_device, visible_devices
from mgwfbp.comm.measure import measure_all_reduce
from mgwfbp.comm.mpi import MPI, abort_job, end_job
from mgwfbp.comm.sleep import sharpen_sleeps, sleep_until
from mgwfbp.comm.thread import Alone, Comm, CommThread, Message, open_comm
from mgwfbp.comm.transports.choose import choose, choose_transport, cuda_support
from mgwfbp.comm.transports.emulated import EmulatedTransport
from mgwfbp.comm.transports.host import HostTransport, Transport, poll_interval_s
from mgwfbp.comm.transports.open import measure_again, open_transport, own_transport
from mgwfbp.comm.transports.registry import TRANSPORTS, transport, transport_names
from mgwfbp.comm.waiting import Watch
from mgwfbp.comm.world import World, closed_together

__all__ = [
    "MPI",
    "TRANSPORTS",
    "Alone",
    "Comm",
    "CommThread",
    "EmulatedTransport",
    "HostTransport",
    "Message",
    "Transport",
    "Watch",
    "World",
    "abort_job",
    "agree",
    "choose",
    "choose_device",
    "choose_transport",
    "closed_together",
    "cuda_support",
    "device_check",
    "devices_here",
    "end_job",
    "in_a_process",
    "measure_again",
    "measure_all_reduce",
    "open_comm",
    "open_transport",
    "own_transport",
    "placements",
    "poll_interval_s",
    "share_weights",
    "sharpen_sleeps",
    "sleep_until",
    "transport",
    "transport_names",
    "use_own_device",
    "visible_devices",
]
