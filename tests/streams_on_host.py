"""CuPy's streams, events and pinned memory without a GPU, as unhelpful as they may be.

What is put into a stream runs when somebody waits for it and not before, so who reads without waiting reads what was
there before. Copies of arrays of tests/cuda_on_host.py go through these streams. A thread that did not choose its
device may not use one.
"""

from __future__ import annotations

import threading
import time
import weakref

from tests.cuda_on_host import Cupy

chosen: set[int] = set()  # threads that have called Device(…).use()
pinned: list[weakref.ref] = []  # all pinned memory there ever was


class Stream:
    def __init__(self, non_blocking=False):
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

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Event:
    def __init__(self, disable_timing=False):
        self.stream = None

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


class Cuda:
    """What we use of cupy.cuda. `count` is how many GPUs there are."""

    Stream, Event = Stream, Event

    def __init__(self, count=1):
        self.compute, self.used, count_of = Stream(), [], count
        chosen.add(threading.get_ident())
        outer = self

        class Device:
            def __init__(self, index=0):
                self.index = index

            def use(self):
                outer.used.append(self.index)
                chosen.add(threading.get_ident())

        class Runtime:
            def getDeviceCount(self):
                return count_of

            def getDeviceProperties(self, index):
                return {"uuid": bytes([index])}

        self.Device, self.runtime = Device, Runtime()

    def get_current_stream(self):
        return self.compute

    def get_elapsed_time(self, first, last):
        for event in (first, last):
            assert event.number <= event.stream.passed, "cudaErrorNotReady"
        return (last.ns - first.ns) * 1e-6

    def alloc_pinned_memory(self, nbytes):
        memory = Pinned(nbytes)
        pinned.append(weakref.ref(memory))
        return memory


class LazyCupy(Cupy):
    """A module to put in the place of CuPy, with streams."""

    __name__ = "cupy"

    def __init__(self, count=1):
        self.cuda = Cuda(count)
