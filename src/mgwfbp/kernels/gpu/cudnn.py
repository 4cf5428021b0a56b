"""Convolutions by cuDNN, through the graphs of `nvidia-cudnn-frontend`: one plan a shape, built at its first use.

cuDNN names axes in the order N, C, H, W (weights O, I, H, W), whatever lies in memory; our NHWC arrays are described by
their strides. Weights it wants in the order OHWI, so ours are transposed before a call and their gradient after it: a
copy of the weight, small beside the convolution. (Weights change in every iteration, so nothing is kept from forward.)

A plan is built in the first iteration, one of those that profile, by the main thread; that holds the interpreter lock
for as long as cuDNN's heuristics and compilers need. Afterwards a call looks its plan up. In fp32 no plan may use
tensor cores, which would round the inputs to TF32; in both maths no plan may be one whose results vary from run to run.
Where that leaves no plan, or where cuDNN has none, the convolution is a matrix product (`gemm_conv`).
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, NamedTuple

from mgwfbp.kernels.types import Array, Pair, output_size

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "forward", "input gradient", "weight gradient"
FIRST, SECOND, RESULT = 1, 2, 3  # names of the three arrays in a graph: cuDNN's "uid"


class Shape(NamedTuple):
    """What decides a plan, beside the operation: NHWC and HWIO shapes, the window's way, element type, and math."""

    x: tuple[int, ...]
    weight: tuple[int, ...]
    stride: Pair
    pad: Pair
    groups: int
    dtype: str  # "float32" or "float64"
    math: str  # "fp32" or "tf32"

    @property
    def y(self) -> tuple[int, ...]:
        """The output's shape, NHWC."""
        return (self.x[0], *output_size(self.x, self.weight, self.stride, self.pad), self.weight[3])


def graph(operation: str, shape: Shape, handle: Any = None) -> Any:
    """The validated graph of one convolution; without a `handle` it can be built and validated, but not run.

    Needs no GPU. The arrays are FIRST, SECOND and RESULT: x, weight, y forward; dy, weight, dx for the input gradient;
    x, dy, dweight for the weight gradient. Raises what `cudnn` raises for a graph that makes no sense.
    """
    import cudnn

    kind = {"float32": cudnn.data_type.FLOAT, "float64": cudnn.data_type.DOUBLE}[shape.dtype]
    made = cudnn.pygraph(io_data_type=kind, intermediate_data_type=kind, compute_data_type=kind, handle=handle)
    x, y = _nhwc(shape.x), _nhwc(shape.y)
    height, width, c, o = shape.weight
    weight = ((o, c, height, width), (height * width * c, 1, width * c, c))
    window = {"padding": list(shape.pad), "stride": list(shape.stride), "dilation": [1, 1]}

    def tensor(uid: int, place: tuple[tuple[int, ...], tuple[int, ...]]) -> Any:
        return made.tensor(dim=list(place[0]), stride=list(place[1]), data_type=kind, uid=uid, name=f"array {uid}")

    if operation == FORWARD:
        result, place = made.conv_fprop(image=tensor(FIRST, x), weight=tensor(SECOND, weight), **window), y
    elif operation == INPUT_GRADIENT:
        result, place = made.conv_dgrad(loss=tensor(FIRST, y), filter=tensor(SECOND, weight), **window), x
    else:
        result, place = made.conv_wgrad(image=tensor(FIRST, x), loss=tensor(SECOND, y), **window), weight
    result.set_output(True).set_uid(RESULT).set_data_type(kind).set_dim(list(place[0])).set_stride(list(place[1]))
    made.validate()
    return made


def _nhwc(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(sizes, strides) of an NHWC array in the order N, C, H, W."""
    n, h, w, c = shape
    return (n, c, h, w), (h * w * c, 1, w * c, c)


class Plan:
    """A convolution that cuDNN has chosen kernels for. `run` starts it on CuPy's current stream."""

    def __init__(self, built: Any, device: Device) -> None:
        self.built, self.device = built, device
        self.workspace_nbytes = built.get_workspace_size()

    def run(self, first: Array, second: Array, result: Array) -> None:
        """Compute `result` from the arrays FIRST and SECOND of the graph; returns before it has run."""
        handle, workspace = self.device.ready(self.workspace_nbytes)
        pointers = {FIRST: first.data.ptr, SECOND: second.data.ptr, RESULT: result.data.ptr}
        self.built.execute(pointers, workspace, handle=handle)


class Device:
    """cuDNN's handle for the current device, and one workspace a stream, which grows to what the largest plan needs.

    For one thread: the main one computes, the comm thread starts no convolutions.
    """

    def __init__(self) -> None:
        import cudnn

        self.cudnn, self.handle = cudnn, cudnn.create_handle()
        self.workspaces: dict[int, Any] = {}
        self.stream: int | None = None

    def ready(self, nbytes: int) -> tuple[Any, int]:
        """(the handle, set to CuPy's current stream; the address of at least `nbytes` of workspace)."""
        import cupy

        stream = cupy.cuda.get_current_stream().ptr
        if stream != self.stream:
            self.cudnn.set_stream(handle=self.handle, stream=stream)
            self.stream = stream
        workspace = self.workspaces.get(stream)
        if workspace is None or workspace.nbytes < nbytes:
            # The old one goes back to CuPy's pool of this stream, which hands it out in the stream's own order.
            workspace = self.workspaces[stream] = cupy.empty(max(nbytes, 1), cupy.uint8)
        return self.handle, workspace.data.ptr

    @cache  # noqa: B019  one device a process, which lives as long as the process does
    def plan(self, operation: str, shape: Shape) -> Plan | None:
        """The plan of that convolution, made once; None, and a line on stderr, if cuDNN has none."""
        cudnn = self.cudnn
        try:
            built = graph(operation, shape, self.handle)
            built.build_operation_graph()
            built.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
            built.deselect_numeric_notes(barred_notes(shape.math))
            built.check_support()
            built.build_plans()
        except (cudnn.cudnnGraphNotSupportedError, RuntimeError) as error:
            what = f"{operation} of {shape.weight} on {shape.x}, stride {shape.stride}, pad {shape.pad}"
            reason = str(error).strip().splitlines() or ["no reason given"]
            sys.stderr.write(f"mgwfbp: cuDNN has no plan for the {what} ({reason[0]}); using matrix products there\n")
            return None
        return Plan(built, self)


def barred_notes(math: str) -> list[Any]:
    """The numerical notes that no plan may have: results that vary and, in "fp32", inputs rounded to TF32."""
    from cudnn import numerical_note

    notes = [numerical_note.NONDETERMINISTIC]
    if math == "fp32":
        notes += [numerical_note.TENSOR_CORE, numerical_note.DOWN_CONVERT_INPUTS]
    return notes
