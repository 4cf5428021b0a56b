"""CuPy's streams, events and pinned memory without a GPU, as unhelpful as they may be.

What is put into a stream runs when somebody waits for it and not before, so who reads without waiting reads what was
there before. Copies of arrays of tests/cuda_on_host.py go through these streams. A thread that did not choose its
device may not use one. Kernels and operations run at once, but where `nothing_in_the_default_stream` is in force a
thread that has not chosen its stream may start none: in the default stream they would wait for all others.
"""

from __future__ import annotations

import threading
import time
import weakref
from types import SimpleNamespace

from tests import cuda_on_host
from tests.cuda_on_host import Cupy

chosen: set[int] = set()  # threads that have called Device(…).use()
pinned: list[weakref.ref] = []  # all pinned memory there ever was
may_spin = False  # whether an event may be one that is waited for without sleep
current, stack = threading.local(), threading.local()  # a thread's stream, and those whose `with` it is in


class Stream:
    def __init__(self, non_blocking=False):
        self.non_blocking = non_blocking
        self.waiting, self.done = [], 0
        self.events = self.passed = 0  # how many were recorded here, and the last one that somebody waited for

    def put(self, work):
        assert threading.get_ident() in chosen, "this thread has not chosen a device"
        self.waiting.append(work)

    def run(self, until=None):
        """Do what is waiting, up to the `until`-th piece of work that ever was put here."""
        while self.waiting and (until is None or self.done < until):
            self.waiting.pop(0)()
            self.done += 1

    synchronize = run

    # As CuPy does it: use() sets the current stream, and is forgotten at the end of the next `with`.

    def use(self):
        current.stream = self
        return self

    def __enter__(self):
        stack.streams = [*getattr(stack, "streams", []), self]
        return self.use()

    def __exit__(self, *_):
        stack.streams.pop()
        current.stream = stack.streams[-1] if stack.streams else DEFAULT


DEFAULT = Stream.null = Stream()


def current_stream():
    return getattr(current, "stream", DEFAULT)


def nothing_in_the_default_stream(what):
    """For `cuda_on_host.started`: refuse kernels, operations and copies of a thread that has not chosen its stream."""
    if not current_stream().non_blocking:
        raise AssertionError(f"{what} in the default stream")


class Event:
    def __init__(self, block=False, disable_timing=False):
        assert block or may_spin, "who waits for this event spins, and takes a core from backward"
        self.stream, self.timed = None, not disable_timing

    def record(self, stream):
        self.stream, self.until = stream, stream.done + len(stream.waiting)
        stream.events += 1
        self.number, self.ns = stream.events, time.perf_counter_ns()

    def synchronize(self):
        assert self.stream is not None, "an event that was never recorded"
        self.stream.run(self.until)
        self.stream.passed = max(self.stream.passed, self.number)


class Pinned(bytearray):
    pass


def pinned_memory(nbytes):
    memory = Pinned(nbytes)
    pinned.append(weakref.ref(memory))
    return memory


class Cuda:
    """What we use of cupy.cuda. `count` is how many GPUs there are, of compute capability `capability`."""

    Stream, Event, PinnedMemory = Stream, Event, staticmethod(pinned_memory)

    def __init__(self, count=1, capability="90", version=13000):
        self.used = []
        chosen.add(threading.get_ident())
        outer = self

        class Device:
            compute_capability = capability

            def __init__(self, index=None):
                self.id = (outer.used or [0])[-1] if index is None else index

            def use(self):
                outer.used.append(self.id)
                chosen.add(threading.get_ident())

        self.Device = Device
        self.runtime = SimpleNamespace(
            getDeviceCount=lambda: count,
            getDeviceProperties=lambda index: {"uuid": bytes([index]) * 16 + b"luid", "name": b"Stand-in"},
            deviceGetAttribute=lambda attribute, index: 0,
            deviceGetPCIBusId=lambda index: f"0000:{index:02x}:00.0",
            runtimeGetVersion=lambda: version,
            driverGetVersion=lambda: version,
        )

    def PinnedMemoryPointer(self, memory, offset):
        assert offset == 0
        return memory

    def get_current_stream(self):
        return current_stream()

    def get_elapsed_time(self, first, last):
        for event in (first, last):
            assert event.timed, "an event made without timing"
            assert event.number <= event.stream.passed, "cudaErrorNotReady"
        return (last.ns - first.ns) * 1e-6


class LazyCupy(Cupy):
    """A module to put in the place of CuPy, with streams."""

    __name__, __version__ = "cupy", "stand-in"

    def __init__(self, *card, **options):
        self.cuda = Cuda(*card, **options)


def in_place_of_cupy():
    """For a process of its own (tests/stand_in/cupy.py): everything may be read, nothing be in the default stream."""
    global may_spin
    cuda_on_host.reads, cuda_on_host.started, may_spin = [], nothing_in_the_default_stream, True
    return LazyCupy(2)
