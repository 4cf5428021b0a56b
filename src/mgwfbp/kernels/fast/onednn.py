"""Convolution by oneDNN's C API (version 3) through ctypes: one plan a shape, made once.

oneDNN's descriptors name axes in the order N, C, H, W (weights O, I, H, W, with the group first), whatever lies in
memory: our NHWC activations and HWIO weights are described by their strides. Weights may be asked for in a blocked
layout of oneDNN's choice, which is faster; they are then reordered into a buffer of the plan before each call, and a
weight gradient is reordered back. Every call must be for float32, C-contiguous arrays.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, Structure, byref, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from importlib.metadata import PackageNotFoundError, PackagePath, files
from pathlib import Path
from typing import Any

import numpy as np

from mgwfbp.kernels.types import Array, Pair, positions

# Values of the enumerations in dnnl_types.h, stable within version 3.
CPU, F32, ANY, IN_ORDER = 1, 3, 1, 1
FORWARD_TRAINING, CONVOLUTION_DIRECT = 64, 1
QUERY_WEIGHTS, QUERY_DIFF_WEIGHTS = 131, 132
SRC, DST, WEIGHTS, BIAS, DIFF_SRC, DIFF_DST, DIFF_WEIGHTS = 1, 17, 33, 41, 129, 145, 161
REORDER_FROM, REORDER_TO = 1, 17

LIBRARY, WHEEL = "libdnnl.so.3", "onednn-cpu-gomp"


class Argument(Structure):
    """dnnl_exec_arg_t: which argument, and its memory object."""

    _fields_ = (("arg", c_int), ("memory", c_void_p))


class _Version(Structure):
    _fields_ = (("major", c_int), ("minor", c_int), ("patch", c_int))


class OneDNN:
    """The library, its CPU engine and one stream. Raises OSError if it cannot be loaded or is not version 3."""

    def __init__(self) -> None:
        self.lib = _load()
        self.lib.dnnl_version.restype = POINTER(_Version)
        version = self.lib.dnnl_version().contents
        if version.major != 3:
            raise OSError(f"oneDNN {version.major}.{version.minor} found, version 3 is needed")
        self.version = f"{version.major}.{version.minor}.{version.patch}"
        self.engine, self.stream = c_void_p(), c_void_p()
        self.call("dnnl_engine_create", byref(self.engine), c_int(CPU), c_size_t(0))
        self.call("dnnl_stream_create", byref(self.stream), self.engine, c_int(IN_ORDER))

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of the C API; RuntimeError with its name if it does not return success (0)."""
        status = getattr(self.lib, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"oneDNN: {function} failed with status {status}")

    def descriptor(self, dims: tuple[int, ...], strides: tuple[int, ...] | None) -> c_void_p:
        """A memory descriptor of float32; without strides the layout is oneDNN's choice."""
        result, count = c_void_p(), len(dims)
        shape = (c_int64 * count)(*dims)
        if strides is None:
            self.call("dnnl_memory_desc_create_with_tag", byref(result), c_int(count), shape, c_int(F32), c_int(ANY))
        else:
            steps = (c_int64 * count)(*strides)
            self.call("dnnl_memory_desc_create_with_strides", byref(result), c_int(count), shape, c_int(F32), steps)
        return result

    def memory(self, descriptor: c_void_p) -> c_void_p:
        """A memory object without data; `point` gives it some."""
        result = c_void_p()
        self.call("dnnl_memory_create", byref(result), descriptor, self.engine, c_void_p(0))
        return result

    def point(self, memory: c_void_p, array: Array) -> None:
        """Let `memory` be the data of `array`."""
        self.lib.dnnl_memory_set_data_handle(memory, c_void_p(array.ctypes.data))

    def execute(self, primitive: c_void_p, arguments: Any) -> None:
        """Run a primitive to its end."""
        self.call("dnnl_primitive_execute", primitive, self.stream, c_int(len(arguments)), arguments)
        self.lib.dnnl_stream_wait(self.stream)

    def queried(self, description: c_void_p, what: int) -> c_void_p:
        """The descriptor that a primitive chose for one of its arguments; it lives as long as the description."""
        self.lib.dnnl_primitive_desc_query_md.restype = c_void_p
        return c_void_p(self.lib.dnnl_primitive_desc_query_md(description, c_int(what), c_int(0)))

    def primitive(self, description: c_void_p) -> c_void_p:
        """The primitive of a description."""
        result = c_void_p()
        self.call("dnnl_primitive_create", byref(result), description)
        return result


def find_library() -> Path | str:
    """MGWFBP_ONEDNN, or the library of the wheel onednn-cpu-gomp, or whatever the system calls libdnnl.so.3.

    A wheel's library lies beside the wheel, in the environment, in --user's folder or a --prefix, as its list of files
    says; conda's lies in the environment.
    """
    named = os.environ.get("MGWFBP_ONEDNN")
    if named:
        return named
    listed = [Path(file.locate()) for file in _files() if file.name == LIBRARY]
    places = [*listed, Path(sys.prefix, "lib", LIBRARY)]
    return next((place.resolve() for place in places if place.exists()), LIBRARY)


def _files() -> list[PackagePath]:
    """What the wheel installed; nothing if it did not."""
    try:
        return files(WHEEL) or []
    except PackageNotFoundError:
        return []


def _load() -> ctypes.CDLL:
    """The library. Raises OSError, with what to do."""
    path = find_library()
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        advice = "pip install 'mgwfbp[fast]'"
        if os.environ.get("MGWFBP_ONEDNN"):
            advice = "look at MGWFBP_ONEDNN"
        elif _files():
            advice = f"{WHEEL} is installed without it, as pip --target does; MGWFBP_ONEDNN can name another"
        raise OSError(f"oneDNN: {error}; {advice}") from None


@cache
def onednn() -> OneDNN:
    """The library, loaded once."""
    return OneDNN()


class Plan:
    """Forward, input gradient and weight gradient of one convolution; each is made when it is first asked for."""

    def __init__(
        self, x_shape: tuple[int, ...], w_shape: tuple[int, ...], stride: Pair, pad: Pair, groups: int
    ) -> None:
        dnn = self.dnn = onednn()
        n, h, w, c = x_shape
        kh, kw, c_group, out = w_shape
        oh, ow = (positions(x_shape[1 + i], w_shape[i], stride[i], pad[i]) for i in (0, 1))
        self.y_shape = (n, oh, ow, out)
        self.x = dnn.descriptor((n, c, h, w), (h * w * c, 1, w * c, c))
        self.y = dnn.descriptor((n, out, oh, ow), (oh * ow * out, 1, ow * out, out))
        dims: tuple[int, ...] = (out, c_group, kh, kw)
        steps: tuple[int, ...] = (1, out, kw * c_group * out, c_group * out)
        if groups > 1:
            dims, steps = (groups, out // groups, *dims[1:]), (out // groups, *steps)
        self.w_ours, self.w_any = dnn.descriptor(dims, steps), dnn.descriptor(dims, None)
        self.bias = dnn.descriptor((out,), (1,))
        pair = c_int64 * 2
        self.window = (pair(*stride), pair(0, 0), pair(*pad), pair(*self._pad_after(x_shape, w_shape, stride, pad)))
        self._forward: dict[bool, _Primitive] = {}
        self._others: dict[str, _Primitive] = {}

    def _pad_after(self, x_shape: tuple[int, ...], w_shape: tuple[int, ...], stride: Pair, pad: Pair) -> Pair:
        """Padding at the end, less what no window reaches: oneDNN wants the sizes to fit exactly."""
        after = [(self.y_shape[1 + i] - 1) * stride[i] + w_shape[i] - x_shape[1 + i] - pad[i] for i in (0, 1)]
        return after[0], after[1]

    def forward(self, bias: bool) -> _Primitive:
        """The primitive y = x * w (+ b)."""
        if bias not in self._forward:
            description = c_void_p()
            self.dnn.call(
                "dnnl_convolution_forward_primitive_desc_create",
                byref(description),
                self.dnn.engine,
                c_int(FORWARD_TRAINING),
                c_int(CONVOLUTION_DIRECT),
                self.x,
                self.w_any,
                self.bias if bias else c_void_p(0),
                self.y,
                *self.window,
                c_void_p(0),
            )
            used = {SRC: self.x, WEIGHTS: self.dnn.queried(description, QUERY_WEIGHTS), DST: self.y}
            if bias:
                used[BIAS] = self.bias
            self._forward[bias] = _Primitive(self.dnn, description, used, self.w_ours, WEIGHTS)
        return self._forward[bias]

    def input_gradient(self) -> _Primitive:
        """The primitive dx from dy and w."""
        return self._backward("data", QUERY_WEIGHTS, WEIGHTS)

    def weight_gradient(self) -> _Primitive:
        """The primitive dw from x and dy."""
        return self._backward("weights", QUERY_DIFF_WEIGHTS, DIFF_WEIGHTS)

    def _backward(self, kind: str, query: int, weights: int) -> _Primitive:
        if kind not in self._others:
            description, hint = c_void_p(), self.forward(False).description
            no_bias = [c_void_p(0)] if kind == "weights" else []
            self.dnn.call(
                f"dnnl_convolution_backward_{kind}_primitive_desc_create",
                byref(description),
                self.dnn.engine,
                c_int(CONVOLUTION_DIRECT),
                self.x,
                self.w_any,
                *no_bias,
                self.y,
                *self.window,
                hint,
                c_void_p(0),
            )
            used = {
                SRC if kind == "weights" else DIFF_SRC: self.x,
                weights: self.dnn.queried(description, query),
                DIFF_DST: self.y,
            }
            self._others[kind] = _Primitive(self.dnn, description, used, self.w_ours, weights)
        return self._others[kind]


class _Primitive:
    """A primitive with its memory objects, and the reorder between our weights and the layout it chose."""

    def __init__(self, dnn: OneDNN, description: c_void_p, used: dict[int, Any], ours: c_void_p, weights: int) -> None:
        self.dnn, self.description, self.weights = dnn, description, weights
        self.primitive = dnn.primitive(description)
        self.memories = {argument: dnn.memory(descriptor) for argument, descriptor in used.items()}
        self.arguments = (Argument * len(used))(*(Argument(a, memory) for a, memory in self.memories.items()))
        self.reorder: Any = None
        if not dnn.lib.dnnl_memory_desc_equal(used[weights], ours):
            dnn.lib.dnnl_memory_desc_get_size.restype = c_size_t
            self.buffer = np.zeros(dnn.lib.dnnl_memory_desc_get_size(used[weights]) // 4 + 16, np.float32)
            dnn.point(self.memories[weights], self.buffer)
            self.ours = dnn.memory(ours)
            pair = (ours, used[weights]) if weights == WEIGHTS else (used[weights], ours)
            reorder = c_void_p()
            dnn.call(
                "dnnl_reorder_primitive_desc_create",
                byref(reorder),
                pair[0],
                dnn.engine,
                pair[1],
                dnn.engine,
                c_void_p(0),
            )
            self.reorder = dnn.primitive(reorder)
            memories = (self.ours, self.memories[weights])
            first, last = memories if weights == WEIGHTS else memories[::-1]
            self.reorder_arguments = (Argument * 2)(Argument(REORDER_FROM, first), Argument(REORDER_TO, last))

    def run(self, arrays: dict[int, Array]) -> None:
        """Execute with `arrays` by argument; the weights (or their gradient) in our layout."""
        for argument, array in arrays.items():
            if argument == self.weights and self.reorder is not None:
                self.dnn.point(self.ours, array)
            else:
                self.dnn.point(self.memories[argument], array)
        if self.reorder is not None and self.weights == WEIGHTS:
            self.dnn.execute(self.reorder, self.reorder_arguments)
        self.dnn.execute(self.primitive, self.arguments)
        if self.reorder is not None and self.weights == DIFF_WEIGHTS:
            self.dnn.execute(self.reorder, self.reorder_arguments)


def gemm(a: Array, b: Array, out: Array, *, add: bool = False) -> None:
    """out = a @ b, or out + a @ b with `add`: a (m, k), b (k, n), out (m, n), float32; `out` has contiguous rows.

    `a` and `b` have contiguous rows or contiguous columns (the transpose of such a matrix).
    """
    (m, k), n = a.shape, b.shape[1]
    (flip_a, *place_a), (flip_b, *place_b) = _operand(a), _operand(b)
    place_out = c_void_p(out.ctypes.data), c_int64(max(n, out.strides[0] // 4))
    sizes = (c_int64(m), c_int64(n), c_int64(k), ctypes.c_float(1))
    onednn().call("dnnl_sgemm", flip_a, flip_b, *sizes, *place_a, *place_b, ctypes.c_float(add), *place_out)


def _operand(matrix: Array) -> tuple[ctypes.c_char, c_void_p, c_int64]:
    """Whether it is transposed, where it lies, and how many elements from row to row (column to column)."""
    rows, columns = (step // 4 for step in matrix.strides)
    flipped = columns != 1 or (matrix.shape[1] == 1 and rows == 1)
    step = columns if flipped else rows
    least = matrix.shape[0] if flipped else matrix.shape[1]
    return ctypes.c_char(b"T" if flipped else b"N"), c_void_p(matrix.ctypes.data), c_int64(max(step, least))


@cache
def plan(x_shape: tuple[int, ...], w_shape: tuple[int, ...], stride: Pair, pad: Pair, groups: int) -> Plan:
    """The plan of that convolution, made once."""
    return Plan(x_shape, w_shape, stride, pad, groups)
