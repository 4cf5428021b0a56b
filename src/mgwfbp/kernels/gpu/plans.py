"""cuDNN's convolutions on the current card: plans built at a shape's first use, the fastest of a few of them kept.

Nearly all plans are built and timed in the first iteration, one of those that profile, by the main thread; a short last
batch and evaluation have shapes of their own. Building holds the interpreter lock for as long as cuDNN's heuristics and
compilers need. Afterwards a call looks its plan up. cuDNN's own order of plans is a guess, so the first few are timed
on the arrays of that first call. Another plan rounds otherwise and a clock does not repeat itself: what was chosen
stands in a file (choices.py), and the next run takes the same.

Where cuDNN has no plan that may be taken, `Device.convolve` says so, once, and the caller takes matrix products.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from statistics import median
from typing import Any

from mgwfbp.errors import UserError
from mgwfbp.kernels.gpu.choices import Choices, kernel_cache
from mgwfbp.kernels.gpu.cudnn import FIRST, FORWARD, PROBE, RESULT, SECOND, Candidate, Shape, candidates, graph
from mgwfbp.kernels.gpu.cupy_set import to_stderr
from mgwfbp.kernels.types import Array

ROUNDS = 5  # in which each plan is timed, in turn; the first, which loads its kernels, does not count
ALIGNED = 16  # bytes: what cuDNN takes for granted of an array's address


class Plan:
    """One convolution that cuDNN has built a few plans for. The first call times them, unless one was kept."""

    def __init__(self, operation: str, shape: Shape, device: Device) -> None:
        self.operation, self.shape, self.device = operation, shape, device
        self.built = graph(operation, shape, device.handle, device.sm)
        self.candidates = candidates(self.built, shape.math)
        self.chosen: Candidate | None = None

    def run(self, first: Array, second: Array, result: Array) -> None:
        """Compute `result` from the arrays FIRST and SECOND of the graph; returns before it has run."""
        first, second = (one.copy() if one.data.ptr % ALIGNED else one for one in (first, second))
        pointers = {FIRST: first.data.ptr, SECOND: second.data.ptr, RESULT: result.data.ptr}
        if self.chosen is None:
            self.chosen = self._choose(pointers)
        self._start(self.chosen, pointers)

    def _start(self, candidate: Candidate, pointers: dict[int, int]) -> None:
        handle, workspace = self.device.ready(candidate.workspace_nbytes)
        self.built.execute_plan_at_index(pointers, workspace, candidate.place, handle=handle)

    def _choose(self, pointers: dict[int, int]) -> Candidate:
        """The plan that was kept, if it can be started, else the fastest on these arrays, which is kept."""
        choices, named = self.device.choices, {one.name: one for one in reversed(self.candidates)}
        kept = choices.kept(self.operation, self.shape)
        if kept in named:
            with suppress(*self.device.faults, MemoryError):
                self._start(named[kept], pointers)
                return named[kept]
        seconds = self._times(pointers)
        self.device.workspaces.clear()  # they are as large as the largest that was tried
        try:
            name = choices.keep(self.operation, self.shape, seconds, instead=kept is not None)
        except UserError as error:
            name = ""
            self.device.say(
                f"mgwfbp: which of cuDNN's plans are the fastest is measured, and cannot be kept ({error}): a run that "
                "is repeated may differ in the last bits; CUPY_CACHE_DIR names another place"
            )
        return named[name if name in seconds else min(seconds, key=lambda one: seconds[one])]

    def _times(self, pointers: dict[int, int]) -> dict[str, float]:
        """Seconds of each plan that can be started, by its name: medians over the rounds. Waits for the device."""
        marks: dict[Candidate, list[tuple[Any, Any]]] = {one: [] for one in self.candidates}
        for _ in range(ROUNDS):
            for one in list(marks):
                before = self.device.event()
                try:
                    self._start(one, pointers)
                except (*self.device.faults, MemoryError) as error:  # built, and yet it cannot be
                    del marks[one]
                    if not marks:
                        raise RuntimeError(str(error) or "out of memory") from error
                    continue
                marks[one].append((before, self.device.event()))
        return {one.name: median(map(self.device.seconds, pairs[1:])) for one, pairs in reversed(marks.items())}


class Device:
    """cuDNN's handle for CuPy's current device, its plans, and one workspace a stream, as large as the largest needs.

    For one thread: the main one computes, the comm thread starts no convolutions. `say` is told, in a line, of a
    convolution that has no plan. `about` names the versions.
    """

    say: Callable[[str], None] = staticmethod(to_stderr)

    def __init__(self) -> None:
        import cudnn
        import cupy

        self.cudnn, self.cupy = cudnn, cupy
        self.faults = (cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError)  # what cuDNN raises
        self.handle, current = cudnn.create_handle(), cupy.cuda.Device()
        self.sm = int(current.compute_capability)
        self.about: str = f"cuDNN {cudnn.backend_version()} with frontend {cudnn.__version__}"
        card = cupy.cuda.runtime.getDeviceProperties(current.id)["name"].decode().replace("/", "-")
        folder = kernel_cache() / "mgwfbp" / f"{card}, cuDNN {cudnn.backend_version()}"
        self.choices = Choices(folder)
        self.plans: dict[tuple[str, Shape], Plan | None] = {}
        self.workspaces: dict[int, Any] = {}
        self.stream: int | None = None

    def probe(self) -> None:
        """Build the plans of a small convolution of the usual kind. Raises one of `faults` if the library cannot."""
        Plan(FORWARD, PROBE, self)

    def convolve(self, operation: str, shape: Shape, first: Array, second: Array, result: Array) -> bool:
        """Compute `result` from the arrays FIRST and SECOND of the graph; False if there is no plan that can."""
        key = operation, shape
        plan = self.plans.get(key)
        try:
            if key not in self.plans:
                plan = self.plans[key] = Plan(operation, shape, self)
            if plan is not None:
                plan.run(first, second, result)
        except self.faults as error:
            if plan is not None and plan.chosen is not None:  # it was started before, so something else is wrong now
                raise
            plan = self.plans[key] = None
            what = f"{operation} of {shape.weight} on {shape.x}, stride {shape.stride}, pad {shape.pad}"
            reason = next(iter(str(error).strip().splitlines()), "no reason given")
            self.say(f"mgwfbp: cuDNN has no plan for the {what} ({reason}); using matrix products there")
        return plan is not None

    def ready(self, nbytes: int) -> tuple[Any, int]:
        """(the handle, set to CuPy's current stream; the address of at least `nbytes` of workspace)."""
        stream = self.cupy.cuda.get_current_stream().ptr
        if stream != self.stream:
            self.cudnn.set_stream(handle=self.handle, stream=stream)
            self.stream = stream
        workspace = self.workspaces.get(stream)
        if workspace is None or workspace.nbytes < nbytes:
            # The old one goes back to CuPy's pool of this stream, which hands it out in the stream's own order.
            self.workspaces.pop(stream, None)
            workspace = self.workspaces[stream] = self.cupy.empty(max(nbytes, 1), self.cupy.uint8)
        return self.handle, workspace.data.ptr

    def event(self) -> Any:
        """A mark in the current stream, for `seconds`."""
        event = self.cupy.cuda.Event(block=True)
        event.record(self.cupy.cuda.get_current_stream())
        return event

    def seconds(self, marks: tuple[Any, Any]) -> float:
        """Seconds of the device between two marks. Waits for the second."""
        marks[1].synchronize()
        return self.cupy.cuda.get_elapsed_time(*marks) * 1e-3
