"""Sleeps that end when they should: a comm thread sleeps between looks at its message, many times in each."""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
import time

PR_SET_TIMERSLACK = 29  # linux/prctl.h
# The numbers of the system calls sched_setattr and sched_getattr.
SCHED_ATTR = {"x86_64": (314, 315), "aarch64": (274, 275)}
# struct sched_attr: size, policy, flags, nice, priority, runtime (the slice), deadline, period
SCHED_FORMAT = "IIQiIQQQ"
NORMAL, BATCH = 0, 3  # the policies that have a slice
SLICE_NS = 100_000
SPIN_NS = 50_000


def sharpen_sleeps() -> None:
    """Let this thread run at once when its sleep or wait ends, on Linux; elsewhere nothing changes.

    Linux lets a timer be 50 µs late, to wake up for several at once: a sleep of 1 µs took 59 µs, without that 9 µs. And
    a thread that asks for short turns (0.1 ms; Linux 6.12 and later) need not wait for the end of another's long one:
    the compute thread's. Policy and nice value stay what the user or the batch system made them.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
    attributes = scheduling()
    if attributes is not None and attributes[1] in (NORMAL, BATCH):
        attributes[5] = SLICE_NS
        number = SCHED_ATTR[platform.machine()][0]
        libc.syscall(number, 0, struct.pack(SCHED_FORMAT, *attributes), 0)  # where a slice is unknown, nothing changes


def scheduling() -> list[int] | None:
    """How Linux schedules this thread, the numbers of its struct sched_attr; None where it cannot be asked."""
    if sys.platform != "linux" or platform.machine() not in SCHED_ATTR:
        return None
    size = struct.calcsize(SCHED_FORMAT)
    buffer = ctypes.create_string_buffer(size)
    if ctypes.CDLL(None).syscall(SCHED_ATTR[platform.machine()][1], 0, buffer, size, 0) != 0:
        return None
    return list(struct.unpack(SCHED_FORMAT, buffer.raw))


def sleep_until(deadline_ns: int) -> None:
    """Return at `deadline_ns` of `time.perf_counter_ns()`, to a few µs; asleep but for the last 50 µs."""
    while (left := deadline_ns - time.perf_counter_ns()) > 0:
        if left > 2 * SPIN_NS:
            time.sleep((left - SPIN_NS) * 1e-9)
