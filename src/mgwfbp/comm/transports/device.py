"""Transports for gradients on a GPU: through pinned host memory, or handed to a CUDA-aware MPI as they are.

The comm thread hears of what the compute stream has not written yet, so each announcement comes with a mark in that
stream, an event, and a message waits for its bucket's last one. CuPy's arrays and streams are used as they are; `cupy`
is the module, or a stand-in for it in the tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgwfbp.comm.mpi import MPI
from mgwfbp.comm.shards import chunks, owned
from mgwfbp.comm.transports.host import FIRST_GUESS, HostTransport
from mgwfbp.comm.transports.registry import transport
from mgwfbp.schedule import Cost

CHUNK_NBYTES = 4 << 20  # of a staged message: while one chunk travels, the next is copied


class _OnDevice(HostTransport):
    """What both kinds share: events as marks, and the device of the comm thread."""

    def __init__(self, comm: MPI.Intracomm, cupy: Any, cost: Cost = FIRST_GUESS) -> None:
        super().__init__(comm, cost)
        self.cupy, self.xp = cupy, cupy
        self.device = cupy.cuda.Device()

    def enter_thread(self) -> None:
        """CUDA's current device is each thread's own; a new thread has the first."""
        self.device.use()

    def mark(self) -> Any:
        """An event behind everything that the main thread has put into its stream."""
        return self._event(self.cupy.cuda.get_current_stream())

    def _event(self, stream: Any) -> Any:
        event = self.cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    def wait_for(self, mark: Any) -> None:
        """Return when the device has passed `mark`. It gives the interpreter lock away while it waits."""
        mark.synchronize()


class StagedTransport(_OnDevice):
    """Device → pinned host memory → MPI → device, as B-Caffe does, but in chunks: copies and messages overlap.

    All copies of a message to the host are put into a stream of their own at once; a chunk is sent when its copy has
    ended, and goes back in another stream while the next one travels. The pinned memory is as large as the arena and
    lives as long as the transport: memory that is freed while a copy or a message uses it belongs to somebody else.
    """

    name = "staged"

    def __init__(self, comm: MPI.Intracomm, cupy: Any, elements: int, dtype: Any = np.float32) -> None:
        super().__init__(comm, cupy)
        dtype = np.dtype(dtype)
        self.memory = cupy.cuda.alloc_pinned_memory(max(1, elements) * dtype.itemsize)
        self.pinned = np.frombuffer(self.memory, dtype, elements)
        self.down, self.up = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
        self.chunk = max(1, min(self.most, CHUNK_NBYTES // dtype.itemsize))

    def all_reduce(self, array: Any) -> None:
        """Sum `array` over all ranks, in place."""
        parts = list(chunks(slice(0, len(array)), self.chunk))
        copied = [self._down(array, part) for part in parts]
        for part, event in zip(parts, copied, strict=True):
            event.synchronize()
            host = self.pinned[part]
            self._wait(self.comm.Iallreduce(MPI.IN_PLACE, host, MPI.SUM), self.cost, host.nbytes)
            array[part].set(host, stream=self.up)
        self.up.synchronize()

    def reduce_scatter(self, array: Any) -> None:
        """Sum this rank's own parts over all ranks."""
        own = owned(slice(0, len(array)), self.comm.Get_rank(), self.comm.Get_size(), self.most)
        self._on_host(super().reduce_scatter, array, received=own)

    def all_gather(self, array: Any) -> None:
        """Spread every rank's own parts."""
        self._on_host(super().all_gather, array, received=[slice(0, len(array))])

    def _on_host(self, call: Any, array: Any, received: list[slice]) -> None:
        self._down(array, slice(0, len(array))).synchronize()
        call(self.pinned[: len(array)])
        for part in received:
            array[part].set(self.pinned[part], stream=self.up)
        self.up.synchronize()

    def _down(self, array: Any, part: slice) -> Any:
        """Copy `part` to the host, and an event behind it."""
        array[part].get(stream=self.down, out=self.pinned[part], blocking=False)
        return self._event(self.down)


class DeviceTransport(_OnDevice):
    """Device arrays straight to a CUDA-aware MPI; blocking calls where its non-blocking ones are not to be trusted.

    `check` compares it with the host: an MPI that says it is CUDA-aware and is not returns wrong sums, or ends the
    process.
    """

    def __init__(self, comm: MPI.Intracomm, cupy: Any, blocking: bool = False) -> None:
        super().__init__(comm, cupy)
        self.blocking, self.name = blocking, "device-blocking" if blocking else "device"
        self.own_stream = cupy.cuda.Stream(non_blocking=True)  # of the comm thread: no other work delays its copies

    def check(self, elements: int) -> None:
        """Sum a short message and one of `elements` float32 on the device and on the host, and compare. Collective.

        Raises RuntimeError where they differ.
        """
        for count in (64, elements):
            expected = (np.arange(count) % 97 + 1 + self.comm.Get_rank()).astype(np.float32)
            array = self.cupy.asarray(expected)
            self.wait_for(self.mark())
            self.all_reduce(array)
            self.comm.Allreduce(MPI.IN_PLACE, expected, MPI.SUM)
            if not np.array_equal(array.get(), expected):
                raise RuntimeError(
                    "this MPI's all-reduce of device memory gave other sums than that of host memory; "
                    "run with --transport staged"
                )

    def all_reduce(self, array: Any) -> None:
        """Sum `array` over all ranks, in place."""
        if not self.blocking:
            super().all_reduce(array)
            return
        for chunk in chunks(slice(0, len(array)), self.most):
            self.comm.Allreduce(MPI.IN_PLACE, array[chunk], MPI.SUM)

    def _reduce_scatter(self, part: Any, own: Any, counts: list[int], cost: Cost) -> None:
        if not self.blocking:
            super()._reduce_scatter(part, own, counts, cost)
            return
        self.comm.Reduce_scatter(part, own, counts, MPI.SUM)

    def _all_gather(self, part: Any, places: tuple[list[int], list[int]], cost: Cost) -> None:
        if not self.blocking:
            super()._all_gather(part, places, cost)
            return
        self.comm.Allgatherv(MPI.IN_PLACE, [part, places])

    def _receive_into(self, elements: int, dtype: Any) -> Any:
        # Memory of this stream's own pool: MPI does not follow streams, and other memory may still be in use by one.
        with self.own_stream:
            return self.cupy.empty(elements, dtype)

    def _keep(self, part: Any, received: Any) -> None:
        with self.own_stream:
            part[...] = received
        self.own_stream.synchronize()


@transport("staged", on_device=True)
def _staged(comm: MPI.Intracomm, cupy: Any, elements: int) -> StagedTransport:
    return StagedTransport(comm, cupy, elements)


@transport("device", on_device=True)
def _device(comm: MPI.Intracomm, cupy: Any, elements: int) -> DeviceTransport:
    return DeviceTransport(comm, cupy)


@transport("device-blocking", on_device=True)
def _device_blocking(comm: MPI.Intracomm, cupy: Any, elements: int) -> DeviceTransport:
    return DeviceTransport(comm, cupy, blocking=True)
