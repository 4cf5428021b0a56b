"""The CUDA sources in `cuda/`: their text, what each kernel takes, and how many threads it is started with.

A kernel's arguments are checked against its declaration in the source, and numbers become the C type that stands there.
So a call with an argument too few, a wrong dtype or an array that is not contiguous is a TypeError here, not a wrong
address on the device. Nothing of this file needs CUDA or CuPy: tests run the same calls on the host.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mgwfbp.kernels.types import Pair

HERE = Path(__file__).parent / "cuda"
FAMILIES = ("elementwise", "pool", "lrn", "norm", "conv")  # one source file each
THREADS = 256  # in a block
MOST_BLOCKS = 1 << 15  # in a flat grid; more elements than threads are a loop in the kernel
MOST_ROWS = 65535  # blocks along the grid's second axis, CUDA's limit

NUMBERS = {"int": np.int32, "Index": np.int64, "double": np.float64}
DECLARATION = re.compile(r'extern "C" __global__ void (\w+)\(([^)]*)\)')
PARAMETER = re.compile(r"(?:const )?(T|int|Index|double) (\*?)(\w+)")


class Parameter(NamedTuple):
    """One parameter of a kernel: `type` is T, int, Index or double; `pointer` says whether it is an array of it."""

    name: str
    type: str
    pointer: bool


class Declaration(NamedTuple):
    """A kernel: the family whose file it stands in, and its parameters in order."""

    family: str
    parameters: tuple[Parameter, ...]


@cache
def source(family: str) -> str:
    """The whole source of a family. What it includes is put in its place: CuPy's cache of compiled code sees the text
    only, and would go on using what it compiled before common.cuh changed.
    """
    common = (HERE / "common.cuh").read_text("utf-8")
    return (HERE / f"{family}.cu").read_text("utf-8").replace('#include "common.cuh"\n', common)


@cache
def declarations() -> dict[str, Declaration]:
    """Every kernel by its name, as the sources declare it."""
    found = {}
    for family in FAMILIES:
        for name, text in DECLARATION.findall(source(family)):
            parts = [PARAMETER.fullmatch(" ".join(part.split())) for part in text.split(",")]
            parameters = (Parameter(part[3], part[1], bool(part[2])) for part in parts if part)
            found[name] = Declaration(family, tuple(parameters))
            if len(found[name].parameters) != len(parts):
                raise ValueError(f"{family}.cu: kernel {name} has a parameter of a type that PARAMETER does not know")
    return found


@cache
def _wanted(kernel: str, dtype: Any) -> list[tuple[str, bool, np.dtype]]:
    """(name, whether it is an array, NumPy's dtype) of each parameter, where T is `dtype`."""
    parameters = declarations()[kernel].parameters
    return [(p.name, p.pointer, np.dtype(NUMBERS.get(p.type, dtype))) for p in parameters]


def checked(kernel: str, dtype: Any, arguments: Sequence[Any]) -> list[Any]:
    """`arguments` as the kernel takes them: arrays as they are, numbers as NumPy scalars of the declared type.

    A null pointer is None, and becomes a 0 of a pointer's size. Raises TypeError for anything that does not fit.
    """
    parameters = _wanted(kernel, dtype)
    if len(arguments) != len(parameters):
        raise TypeError(f"kernel {kernel} takes {len(parameters)} arguments, got {len(arguments)}")
    result = []
    for (name, pointer, wanted), argument in zip(parameters, arguments, strict=True):
        if not pointer:
            result.append(wanted.type(argument))
        elif argument is None:
            result.append(np.uintp(0))
        elif argument.dtype == wanted and argument.flags.c_contiguous:
            result.append(argument)
        else:
            got = f"{argument.dtype} of strides {argument.strides}"
            raise TypeError(f"kernel {kernel}: {name} must be a contiguous array of {wanted}, got {got}")
    return result


def grid(width: int, rows: int = 1) -> Pair:
    """Blocks of `THREADS` threads along both axes of the grid for `rows` rows of `width` elements; at least one."""
    blocks_y = max(1, min(rows, MOST_ROWS))
    return max(1, min(-(-width // THREADS), MOST_BLOCKS // blocks_y)), blocks_y
