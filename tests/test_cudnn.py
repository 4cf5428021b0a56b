"""Convolutions by cuDNN without a GPU: the graphs, and all that is ours around a plan."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mgwfbp.kernels.gpu import cudnn, load
from mgwfbp.kernels.gpu.cudnn_set import CudnnSet
from tests.cuda_on_host import launch, to_host, xp
from tests.test_cuda_kernels import CONVOLUTIONS, check_convolution

OPERATIONS = (cudnn.FORWARD, cudnn.INPUT_GRADIENT, cudnn.WEIGHT_GRADIENT)


class PlanByTorch:
    """Stands in for a cuDNN plan: reads its arrays as the graph describes them, NCHW with strides, weights OIHW."""

    def __init__(self, operation, shape):
        self.operation, self.shape = operation, shape

    def run(self, first, second, result):
        shape, sizes = self.shape, {"x": cudnn._nhwc(self.shape.x), "y": cudnn._nhwc(self.shape.y)}
        height, width, c, o = shape.weight
        sizes["weight"] = ((o, c, height, width), (height * width * c, 1, width * c, c))
        names = {
            cudnn.FORWARD: ("x", "weight", "y"),
            cudnn.INPUT_GRADIENT: ("y", "weight", "x"),
            cudnn.WEIGHT_GRADIENT: ("x", "y", "weight"),
        }[self.operation]
        arrays = []
        for array, (size, strides) in zip((first, second, result), (sizes[name] for name in names), strict=True):
            assert array.flags.c_contiguous
            assert array.size == np.prod(size)
            steps = [step * array.itemsize for step in strides]
            arrays.append(np.lib.stride_tricks.as_strided(to_host(array), size, steps))
        one, two = (torch.from_numpy(array.copy()) for array in arrays[:2])
        options = {"stride": shape.stride, "padding": shape.pad, "groups": shape.groups}
        if self.operation == cudnn.FORWARD:
            arrays[2][...] = torch.nn.functional.conv2d(one, two, **options).numpy()
        elif self.operation == cudnn.INPUT_GRADIENT:
            arrays[2][...] = torch.nn.grad.conv2d_input(arrays[2].shape, two, one, **options).numpy()
        else:
            arrays[2][...] = torch.nn.grad.conv2d_weight(one, arrays[2].shape, two, **options).numpy()


def with_cudnn(plan=PlanByTorch):
    return CudnnSet(xp, launch, plan=plan)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_by_plans(name, dtype):
    """All but cuDNN itself: the order of the arrays, the weights' order, and which convolutions it gets."""
    asked = []

    def plan(operation, shape):
        asked.append((operation, shape))
        return PlanByTorch(operation, shape)

    check_convolution(with_cudnn(plan), name, dtype)
    assert {operation for operation, _ in asked} == (
        set() if name == "1x1" else {cudnn.FORWARD, cudnn.INPUT_GRADIENT, cudnn.WEIGHT_GRADIENT}
    )
    assert len({shape for _, shape in asked}) <= 1
    check_convolution(with_cudnn(lambda operation, shape: None), name, dtype)  # cuDNN has no plan: products


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_cudnn_graphs_are_valid(name, dtype):
    """Needs nvidia-cudnn-frontend, but no GPU."""
    frontend = pytest.importorskip("cudnn", reason="nvidia-cudnn-frontend is not installed (mgwfbp[cuda13])")
    try:
        frontend.backend_version()
    except RuntimeError as error:
        pytest.skip(f"the library of cuDNN is not found: {error}")
    x, kernel, out, stride, pad, groups = CONVOLUTIONS[name]
    weight = (*kernel, x[3] // groups, out)
    for math in load.MATHS:
        assert cudnn.barred_notes(math)
        for operation in OPERATIONS:
            assert cudnn.graph(operation, cudnn.Shape(x, weight, stride, pad, groups, dtype, math)) is not None


class Refused(Exception):
    """Stands in for cudnnGraphNotSupportedError."""


class RecordingGraph:
    """Stands in for cudnn.pygraph: every call is written down, and returns what can be called on."""

    def __init__(self, calls, workspace, refuse):
        self.calls, self.workspace, self.refuse = calls, workspace, refuse

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls.append((name, arguments, options))
            if name == self.refuse:
                raise Refused("No execution plans support the graph.\nmore")
            return self.workspace if name == "get_workspace_size" else self

        return call


@pytest.fixture
def recorded(monkeypatch):
    """Stand-ins for cudnn and cupy, as far as `cudnn.Device` calls them; the calls in order, and settings to change."""
    calls, settings = [], SimpleNamespace(workspace=100, refuse=None, stream=7, buffers=[])

    def empty(nbytes, dtype):
        settings.buffers.append(nbytes)
        return SimpleNamespace(nbytes=nbytes, data=SimpleNamespace(ptr=1000 + nbytes))

    stream = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=settings.stream))
    frontend = SimpleNamespace(
        create_handle=lambda: 42,
        set_stream=lambda handle, stream: calls.append(("set_stream", (handle, stream), {})),
        pygraph=lambda **options: RecordingGraph(calls, settings.workspace, settings.refuse),
        data_type=SimpleNamespace(FLOAT="float", DOUBLE="double"),
        heur_mode=SimpleNamespace(A="A", FALLBACK="fallback"),
        numerical_note=SimpleNamespace(NONDETERMINISTIC="varies", TENSOR_CORE="tensor", DOWN_CONVERT_INPUTS="down"),
        cudnnGraphNotSupportedError=Refused,
    )
    monkeypatch.setitem(sys.modules, "cudnn", frontend)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=stream, empty=empty, uint8="uint8"))
    return calls, settings


SHAPE = cudnn.Shape((2, 8, 8, 4), (3, 3, 4, 6), (1, 1), (1, 1), 1, "float32", "fp32")


def test_a_plan_is_built_once_and_no_tensor_cores_or_varying_results_are_allowed(recorded):
    calls, _ = recorded
    device = cudnn.Device()
    plan = device.plan(cudnn.FORWARD, SHAPE)
    names = [name for name, _, _ in calls]
    order = ["validate", "build_operation_graph", "create_execution_plans", "deselect_numeric_notes", "check_support"]
    places = [names.index(name) for name in [*order, "build_plans"]]
    assert places == sorted(places)
    assert {name: arguments for name, arguments, _ in calls}["deselect_numeric_notes"] == (
        ["varies", "tensor", "down"],
    )
    built = len(calls)
    assert device.plan(cudnn.FORWARD, SHAPE) is plan
    assert len(calls) == built
    device.plan(cudnn.FORWARD, SHAPE._replace(math="tf32"))
    assert [arguments for name, arguments, _ in calls if name == "deselect_numeric_notes"][1] == (["varies"],)


def test_a_plan_runs_on_the_current_stream_with_that_streams_workspace(recorded):
    calls, settings = recorded
    device = cudnn.Device()
    arrays = [SimpleNamespace(data=SimpleNamespace(ptr=ptr)) for ptr in (11, 12, 13)]
    small = device.plan(cudnn.FORWARD, SHAPE)
    settings.workspace = 500
    large = device.plan(cudnn.WEIGHT_GRADIENT, SHAPE)
    calls.clear()
    for plan, stream in ((small, 7), (large, 7), (small, 7), (small, 8)):
        settings.stream = stream
        plan.run(*arrays)
    pointers = {cudnn.FIRST: 11, cudnn.SECOND: 12, cudnn.RESULT: 13}
    assert calls == [
        ("set_stream", (42, 7), {}),
        ("execute", (pointers, 1100), {"handle": 42}),
        ("execute", (pointers, 1500), {"handle": 42}),
        ("execute", (pointers, 1500), {"handle": 42}),
        ("set_stream", (42, 8), {}),
        ("execute", (pointers, 1100), {"handle": 42}),
    ]
    assert settings.buffers == [100, 500, 100]


def test_a_shape_without_a_plan_is_said_once(recorded, capsys):
    _, settings = recorded
    settings.refuse = "check_support"
    device = cudnn.Device()
    for _ in range(2):
        assert device.plan(cudnn.INPUT_GRADIENT, SHAPE) is None
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cuDNN has no plan for the input gradient of (3, 3, 4, 6) on (2, 8, 8, 4)" in said
    assert "(No execution plans support the graph.); using matrix products there" in said
