"""Transports for gradients on a GPU: through pinned host memory, or handed to a CUDA-aware MPI as they are.

The comm thread hears of what the compute stream has not written yet, so each announcement comes with a mark in that
stream, an event, and a message waits for its bucket's last one. The comm thread puts nothing but copies into streams,
and these are its own. CuPy's arrays and streams are used as they are; `cupy` is the module, or a stand-in for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgwfbp.comm.mpi import MPI
from mgwfbp.comm.shards import chunks, owned
from mgwfbp.comm.sums.buffers import Buffers, Sums, Wait
from mgwfbp.comm.sums.chosen import serving
from mgwfbp.comm.sums.library import Library
from mgwfbp.comm.transports.host import FIRST_GUESS, HostTransport
from mgwfbp.comm.transports.registry import transport
from mgwfbp.schedule import Cost

CHUNK_NBYTES = 4 << 20  # of a staged message: while one chunk travels, the next is copied
COMPUTE_MODE, EXCLUSIVE_PROCESS = 20, 3  # cudaDevAttrComputeMode, and one of its values
MOST_TRIED = 1 << 24  # elements of the largest message that is compared with the host's sum


def event_in(cupy: Any, stream: Any) -> Any:
    """An event behind all that was put into `stream`. Who waits for it sleeps.

    Otherwise the comm thread would spin through nearly all of backward, on a core of its own.
    """
    event = cupy.cuda.Event(block=True, disable_timing=True)
    event.record(stream)
    return event


class _OnDevice(HostTransport):
    """What both kinds share: events as marks, and the device of the comm thread."""

    def __init__(self, comm: MPI.Intracomm, cupy: Any, cost: Cost = FIRST_GUESS) -> None:
        self.cupy, self.xp = cupy, cupy
        super().__init__(comm, cost)
        self.device = cupy.cuda.Device()

    def enter_thread(self) -> None:
        """CUDA's current device is each thread's own; a new thread has the first."""
        self.device.use()

    def mark(self) -> Any:
        """An event behind everything that the main thread has put into its stream."""
        return self._event(self.cupy.cuda.get_current_stream())

    def _event(self, stream: Any) -> Any:
        return event_in(self.cupy, stream)

    def wait_for(self, mark: Any) -> None:
        """Return when the device has passed `mark`. It gives the interpreter lock away while it waits."""
        mark.synchronize()


class StagedTransport(_OnDevice):
    """Device → pinned host memory → MPI → device, as B-Caffe does, but in chunks: copies and messages overlap.

    All copies of a message to the host are put into a stream of their own at once; a chunk is sent when its copy has
    ended, and goes back in another stream while the next one travels. The pinned memory is as large as the arena and
    lives as long as the transport: memory that is freed while a copy or a message uses it belongs to somebody else.
    It is taken as it is; CuPy's pool would take up to twice as much, the next power of two.
    """

    name = "staged"

    def __init__(self, comm: MPI.Intracomm, cupy: Any, elements: int, dtype: Any = np.float32) -> None:
        super().__init__(comm, cupy)
        dtype = np.dtype(dtype)
        nbytes = max(1, elements) * dtype.itemsize
        self.memory = cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(nbytes), 0)
        self.pinned = np.frombuffer(self.memory, dtype, elements)
        self.down, self.up = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
        self.most = max(1, min(self.most, CHUNK_NBYTES // dtype.itemsize))

    def all_reduce(self, array: Any) -> None:
        """Sum `array` over all ranks, in place."""
        self._through_host(array, serving(self.sums, array.nbytes).all_reduce)

    def reduce_scatter(self, array: Any) -> None:
        """Sum this rank's own parts over all ranks."""
        self._through_host(array, serving(self.sums, array.nbytes).reduce_scatter, up=self._own)

    def all_gather(self, array: Any) -> None:
        """Spread every rank's own parts."""
        self._through_host(array, serving(self.sums, array.nbytes).all_gather, down=self._own)

    def _own(self, chunk: slice) -> slice:
        """This rank's part of a chunk."""
        return owned(chunk, self.comm.Get_rank(), self.comm.Get_size(), self.most)[0]

    def _through_host(
        self,
        array: Any,
        send: Callable[[Any], None],
        down: Callable[[slice], slice] = lambda chunk: chunk,
        up: Callable[[slice], slice] = lambda chunk: chunk,
    ) -> None:
        """`send` each chunk in the pinned memory, of which `down` is copied there before, and `up` back after it."""
        parts = list(chunks(slice(0, len(array)), self.most))
        copied = [self._down(array, down(part)) for part in parts]
        for part, event in zip(parts, copied, strict=True):
            event.synchronize()
            send(self.pinned[part])
            result = up(part)
            if result.stop > result.start:  # a rank may have no part of a short chunk
                array[result].set(self.pinned[result], stream=self.up)
        self._arrived()

    def _down(self, array: Any, part: slice) -> Any:
        """Copy `part` to the host, and an event behind it."""
        if part.stop > part.start:
            array[part].get(stream=self.down, out=self.pinned[part], blocking=False)
        return self._event(self.down)

    def _arrived(self) -> None:
        """Return when all copies to the device have ended."""
        self._event(self.up).synchronize()


class DeviceTransport(_OnDevice):
    """Device arrays straight to a CUDA-aware MPI; blocking calls where its non-blocking ones are not to be trusted.

    `wrong_sums` compares it with the host: an MPI that says it is CUDA-aware and is not returns wrong sums, or ends the
    process.
    """

    def __init__(self, comm: MPI.Intracomm, cupy: Any, blocking: bool = False) -> None:
        self.blocking, self.name = blocking, "device-blocking" if blocking else "device"
        self.own_stream = cupy.cuda.Stream(non_blocking=True)  # of the comm thread: no other work delays its copies
        super().__init__(comm, cupy)

    @property
    def exclusive(self) -> bool:
        """Whether the card takes one process only."""
        return self.cupy.cuda.runtime.deviceGetAttribute(COMPUTE_MODE, self.device.id) == EXCLUSIVE_PROCESS

    def wrong_sums(self, elements: int) -> str | None:
        """Which of the three collectives gives other sums on the device than on the host, if any. Collective.

        Tried with a short message and one of `elements` float32, or MOST_TRIED.
        """
        rank, ranks, wrong = self.comm.Get_rank(), self.comm.Get_size(), None
        for count in (64, min(elements, MOST_TRIED)):
            given = np.arange(count, dtype=np.float32) % 97 + (1 + rank)
            sums, scattered, gathered = given.copy(), given.copy(), np.zeros_like(given)
            self.comm.Allreduce(MPI.IN_PLACE, sums, MPI.SUM)
            for part in owned(slice(0, count), rank, ranks, self.most):
                scattered[part] = gathered[part] = sums[part]
            tried = [
                ("all-reduce", self.all_reduce, given, sums),
                ("reduce-scatter", self.reduce_scatter, given, scattered),
                ("all-gather", self.all_gather, gathered, sums),
            ]
            for name, call, before, after in tried:
                array = self.cupy.asarray(before)
                self.wait_for(self.mark())
                call(array)
                if not np.array_equal(array.get(), after):
                    wrong = wrong or name
        return wrong

    def _ways(self, algorithm: str = "mpi", wire: str = "fp32") -> list[Sums]:
        kind = Blocking if self.blocking else OnDevice
        return [kind(self.comm, self._wait, DeviceBuffers(self.cupy, self.own_stream))]


class DeviceBuffers(Buffers):
    """Memory of the comm thread's stream: MPI does not follow streams, and other memory may still be in use by one."""

    def __init__(self, cupy: Any, stream: Any) -> None:
        super().__init__()
        self.cupy, self.stream = cupy, stream

    def empty(self, elements: int, dtype: Any) -> Any:
        """New memory of the device."""
        with self.stream:
            return self.cupy.empty(elements, dtype)

    def copy(self, source: Any, target: Any) -> None:
        """Copy on the device, and return when it is done."""
        if not len(target):
            return
        with self.stream:
            target[...] = source
        event_in(self.cupy, self.stream).synchronize()


class OnDevice(Library):
    """The library's sums of device arrays: in place, as CUDA-aware libraries are made for."""

    def __init__(self, comm: MPI.Intracomm, wait: Wait, buffers: Buffers) -> None:
        super().__init__(comm, wait, buffers)
        self.in_place = True


class Blocking(OnDevice):
    """The same by blocking calls."""

    def _all_reduce(self, sent: Any, part: Any) -> None:
        self.comm.Allreduce(sent, part, MPI.SUM)

    def _scatter(self, part: Any, received: Any, counts: list[int]) -> None:
        self.comm.Reduce_scatter(part, received, counts, MPI.SUM)

    def _gather(self, part: Any, parts: tuple[list[int], list[int]]) -> None:
        self.comm.Allgatherv(MPI.IN_PLACE, [part, parts])


@transport("staged", on_device=True)
def _staged(comm: MPI.Intracomm, cupy: Any, elements: int) -> StagedTransport:
    return StagedTransport(comm, cupy, elements)


@transport("device", on_device=True)
def _device(comm: MPI.Intracomm, cupy: Any, elements: int) -> DeviceTransport:
    return DeviceTransport(comm, cupy)


@transport("device-blocking", on_device=True)
def _device_blocking(comm: MPI.Intracomm, cupy: Any, elements: int) -> DeviceTransport:
    return DeviceTransport(comm, cupy, blocking=True)
