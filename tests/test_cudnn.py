"""Convolutions by cuDNN without a GPU: how the set hands over its arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mgwfbp.kernels.gpu import cudnn
from mgwfbp.kernels.gpu.cudnn_set import CudnnSet
from tests.cuda_on_host import launch, to_host, xp
from tests.test_cuda_kernels import CONVOLUTIONS, check_convolution

OPERATIONS = (cudnn.FORWARD, cudnn.INPUT_GRADIENT, cudnn.WEIGHT_GRADIENT)


class ByTorch:
    """Stands in for cuDNN: reads the arrays as the graphs describe them, NCHW with strides, weights OIHW."""

    def __init__(self, has_plans=True):
        self.has_plans, self.asked = has_plans, []

    def convolve(self, operation, shape, first, second, result):
        self.asked.append((operation, shape))
        if not self.has_plans:
            return False
        sizes = {"x": cudnn._nhwc(shape.x), "y": cudnn._nhwc(shape.y)}
        height, width, c, o = shape.weight
        sizes["weight"] = ((o, c, height, width), (height * width * c, 1, width * c, c))
        names = {
            cudnn.FORWARD: ("x", "weight", "y"),
            cudnn.INPUT_GRADIENT: ("y", "weight", "x"),
            cudnn.WEIGHT_GRADIENT: ("x", "y", "weight"),
        }[operation]
        arrays = []
        for array, (size, strides) in zip((first, second, result), (sizes[name] for name in names), strict=True):
            assert array.flags.c_contiguous
            assert array.size == np.prod(size)
            steps = [step * array.itemsize for step in strides]
            arrays.append(np.lib.stride_tricks.as_strided(to_host(array), size, steps))
        one, two = (torch.from_numpy(array.copy()) for array in arrays[:2])
        options = {"stride": shape.stride, "padding": shape.pad, "groups": shape.groups}
        if operation == cudnn.FORWARD:
            arrays[2][...] = torch.nn.functional.conv2d(one, two, **options).numpy()
        elif operation == cudnn.INPUT_GRADIENT:
            arrays[2][...] = torch.nn.grad.conv2d_input(arrays[2].shape, two, one, **options).numpy()
        else:
            arrays[2][...] = torch.nn.grad.conv2d_weight(one, arrays[2].shape, two, **options).numpy()
        return True


def with_cudnn():
    return CudnnSet(xp, launch, ByTorch())


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_by_plans(name, dtype):
    """All but cuDNN itself: the order of the arrays, the weights' order, and which convolutions it gets."""
    kernels = with_cudnn()
    check_convolution(kernels, name, dtype)
    assert {operation for operation, _ in kernels.device.asked} == (set() if name == "1x1" else set(OPERATIONS))
    assert len({shape for _, shape in kernels.device.asked}) <= 1
    check_convolution(CudnnSet(xp, launch, ByTorch(has_plans=False)), name, dtype)  # products
