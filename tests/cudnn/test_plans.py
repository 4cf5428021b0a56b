"""Every convolution of the zoo has a plan on today's cards, and none that may not be taken."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from mgwfbp.kernels.gpu import cudnn
from mgwfbp.kernels.gpu.gemm_conv import pixels_are_windows
from mgwfbp.kernels.gpu.load import MATHS
from mgwfbp.kernels.gpu.plans import Device, Plan
from mgwfbp.models import MODELS, build
from mgwfbp.net.layers import Conv2d

from .conftest import CARDS

pytest.importorskip("cudnn", reason="the wheels of cuDNN are not installed (make test-all installs them)")

BATCH = 32
OPERATIONS = (cudnn.FORWARD, cudnn.INPUT_GRADIENT, cudnn.WEIGHT_GRADIENT)
every_card = pytest.mark.parametrize("card", CARDS, indirect=True)


def convolutions():
    """The shapes of all convolutions of all nets that cuDNN is asked for, in fp32, each once."""
    found = set()
    for name in MODELS:
        net = build(name)
        for layer, sources in zip(net.layers, net.sources, strict=True):
            if not isinstance(layer, Conv2d):
                continue
            weight = layer.parameters[0].shape
            way = layer.stride, layer.pad, layer.groups
            if layer.groups > 1 or not pixels_are_windows(weight, *way[:2]):
                found.add(cudnn.Shape((BATCH, *net.shapes[sources[0]]), weight, *way, "float32", "fp32"))
    return sorted(found)


ODD = {  # x, kernel, out, stride, pad, groups: what other nets have
    "stride over kernel": ((2, 8, 9, 2), (2, 2), 3, (3, 3), (0, 0), 1),
    "rectangular": ((2, 17, 17, 8), (1, 7), 12, (1, 1), (0, 3), 1),
    "1x1 stride": ((2, 5, 5, 3), (1, 1), 4, (2, 2), (0, 0), 1),
    "groups": ((2, 27, 27, 96), (5, 5), 256, (1, 1), (2, 2), 2),
    "depthwise": ((2, 14, 14, 32), (3, 3), 32, (1, 1), (1, 1), 32),
    "groups 1x1": ((2, 4, 4, 4), (1, 1), 6, (1, 1), (0, 0), 2),
    "one channel": ((2, 6, 6, 1), (5, 5), 1, (1, 1), (2, 2), 1),
}


def with_note(card, plan, note):
    """The plan's candidates that cuDNN itself builds where only plans with the numerical note may be taken."""
    only = cudnn.graph(plan.operation, plan.shape, "handle", plan.device.sm)
    only.build_operation_graph()
    only.create_execution_plans([card.heur_mode.A, card.heur_mode.FALLBACK])
    only.select_numeric_notes([note])
    found = []
    for one in plan.candidates:
        with suppress(card.cudnnGraphNotSupportedError, RuntimeError):
            only.build_plan_at_index(one.place)
            found.append(one)
    return found


@every_card
def test_the_library_works_without_a_cuda_runtime(card):
    """pip's wheels put it where no loader looks: a frontend that looks for it refuses every plan."""
    Device().probe()
    assert "libcudart" not in Path("/proc/self/maps").read_text()


@every_card
@pytest.mark.parametrize("math", MATHS)
def test_every_convolution_of_the_zoo_has_plans(card, math):
    """Of the operations, in both maths: barred ones stay out, and workspaces are small where there is a choice."""
    device, shapes, barred = Device(), convolutions(), set(cudnn.barred_notes(math))
    assert len(shapes) > 60
    several, on_tensor_cores = 0, 0
    for shape in shapes:
        for operation in OPERATIONS:
            plan = Plan(operation, shape._replace(math=math), device)
            assert 1 <= len(plan.candidates) <= cudnn.TRIED
            several += len(plan.candidates) > 1
            for one in plan.candidates:
                assert one.workspace_nbytes <= cudnn.WORKSPACE_NBYTES, (operation, shape, one)
            for note in barred:
                assert not with_note(card, plan, note), (operation, shape, note)
            if math == "tf32":
                on_tensor_cores += bool(with_note(card, plan, card.numerical_note.TENSOR_CORE))
    assert several > len(shapes)  # so there is something to choose by time
    assert (on_tensor_cores > len(shapes)) == (math == "tf32" and device.sm >= 80)  # which is what fp32 bars


@every_card
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ODD)
def test_odd_convolutions_have_plans_too(card, name, dtype):
    x, kernel, out, stride, pad, groups = ODD[name]
    device, shape = Device(), cudnn.Shape(x, (*kernel, x[3] // groups, out), stride, pad, groups, dtype, "fp32")
    for operation in OPERATIONS:
        assert Plan(operation, shape, device).candidates
