"""What cuDNN is asked for: the graph of a convolution for `nvidia-cudnn-frontend`, and which of its plans may be taken.

cuDNN names axes in the order N, C, H, W (weights O, I, H, W), whatever lies in memory; our NHWC arrays are described by
their strides. Weights it wants in the order OHWI, so ours are transposed before a call and their gradient after it: a
copy of the weight, small beside the convolution. (Weights change in every iteration, so nothing is kept from forward.)

In fp32 no plan may use tensor cores, which would round the inputs to TF32; in both maths no plan may be one whose
results vary from run to run. Nothing here needs a GPU: tests build these plans for cards that are not there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mgwfbp.kernels.types import Pair, output_size

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "forward", "input gradient", "weight gradient"
FIRST, SECOND, RESULT = 1, 2, 3  # names of the three arrays in a graph: cuDNN's "uid"
WORKSPACE_NBYTES = 512 << 20  # the most that a plan may want to itself, where there are others
TRIED = 6  # plans of a convolution that are timed; cuDNN lists those first that it thinks the fastest


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


# Small, and of the usual kind: a library that has no plan for it is broken.
PROBE = Shape((2, 8, 8, 16), (3, 3, 16, 16), (1, 1), (1, 1), 1, "float32", "fp32")


class Candidate(NamedTuple):
    """A plan that was built: its place in the graph's list, cuDNN's name for it, and the workspace it wants."""

    place: int
    name: str
    workspace_nbytes: int


def graph(operation: str, shape: Shape, handle: Any = None, sm: int | None = None) -> Any:
    """The validated graph of one convolution; without a `handle` it can be built and validated, but not run.

    `sm` is the card's compute capability (90 for 9.0). Without it the frontend looks for a card through a CUDA runtime
    library that it finds by name, which is nowhere where CUDA came from wheels. The arrays are FIRST, SECOND and
    RESULT: x, weight, y forward; dy, weight, dx for the input gradient; x, dy, dweight for the weight gradient. Raises
    what `cudnn` raises for a graph that makes no sense.
    """
    import cudnn

    kind = {"float32": cudnn.data_type.FLOAT, "float64": cudnn.data_type.DOUBLE}[shape.dtype]
    made = cudnn.pygraph(
        io_data_type=kind, intermediate_data_type=kind, compute_data_type=kind, handle=handle, sm_version=sm
    )
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


def candidates(built: Any, math: str) -> list[Candidate]:
    """The first TRIED plans of a validated graph that may be taken and can be built, in cuDNN's order; all are built.

    One that wants more workspace than WORKSPACE_NBYTES comes in question where no other is left. Raises what `cudnn`
    raises if none can be built.
    """
    import cudnn

    built.build_operation_graph()
    built.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    built.deselect_numeric_notes(barred_notes(math))
    built.check_support()
    found: list[Candidate] = []
    too_large: list[Candidate] = []
    fault: Exception = RuntimeError("there is no plan")
    for place in range(built.get_execution_plan_count()):
        try:
            built.build_plan_at_index(place)
        except (cudnn.cudnnGraphNotSupportedError, RuntimeError) as error:  # barred, or not for this card
            fault = error
            continue
        nbytes = built.get_workspace_size_plan_at_index(place)
        fits = found if nbytes <= WORKSPACE_NBYTES else too_large
        fits.append(Candidate(place, built.get_plan_name_at_index(place), nbytes))
        if len(found) == TRIED:
            break
    if not found and not too_large:
        raise fault
    return found or sorted(too_large, key=lambda one: one.workspace_nbytes)[:1]


def barred_notes(math: str) -> list[Any]:
    """The numerical notes that no plan may have: results that vary and, in "fp32", inputs rounded to TF32."""
    from cudnn import numerical_note

    notes = [numerical_note.NONDETERMINISTIC]
    if math == "fp32":
        notes += [numerical_note.TENSOR_CORE, numerical_note.DOWN_CONVERT_INPUTS]
    return notes
