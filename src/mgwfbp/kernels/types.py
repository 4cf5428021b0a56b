"""What all kernel sets speak of: arrays, pairs of sizes, and how many places a window has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Array = Any  # numpy.ndarray, or cupy.ndarray in the GPU set
Pair = tuple[int, int]
Method = TypeVar("Method", bound=Callable[..., Any])


def positions(size: int, kernel: int, stride: int, pad: int) -> int:
    """How many places a window of `kernel` has, moved by `stride` over `size` elements padded by `pad` at both ends.

    Rounded down, as torch has it: a window that would stick out is left out. 0 or less if none fits.
    """
    return (size + 2 * pad - kernel) // stride + 1


def output_size(x_shape: tuple[int, ...], w_shape: tuple[int, ...], stride: Pair, pad: Pair) -> Pair:
    """Height and width of a convolution's output; `x_shape` is NHWC, `w_shape` HWIO."""
    height, width = (positions(x_shape[1 + i], w_shape[i], stride[i], pad[i]) for i in (0, 1))
    return height, width
