"""Readers of public measurement logs: B-Caffe's layer times, OSU's and NCCL's all-reduce times.

Each takes the text of a log and gives a workload or the object of a NETWORK file. Lines that belong to the log's format
but are damaged raise UserError with the line's number; lines of other programs between them are skipped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mgwfbp.errors import UserError
from mgwfbp.schedule import LayerProfile, Workload, fit_affine

ALIGNED_ITEM_BYTES = 4  # B-Caffe sends float32


def read_log(path: str) -> str:
    """The text of the log `path`. Raises UserError if it cannot be read or is no text."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"log {path}: cannot be read ({error.strerror or error})") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UserError(f"log {path}: not a text file")
    return text


_TENSOR = re.compile(r"distributed\.cpp:\d+\]\s*\[(.*)")


def bcaffe_workload(
    text: str, where: str, *, block: int | None = None, forward_share: float = 0.5, batch_size: int = 64
) -> Workload:
    """The workload in a B-Caffe log, lines `… distributed.cpp:112] [id, elements, backward_us, comm_us(, comm_us)]`.

    The log may hold several blocks of tensors 0, 1, 2, …; `block` (from 1) picks one, by default the last whose times
    are not all zero. File order is forward order. Two neighbouring tensors with the same time are one layer (weight,
    bias). The log has no forward times: they are taken as `forward_share` of the backward times. Elements are padded to
    64, and `parameters` counts them so.
    """
    blocks: list[list[tuple[int, float]]] = []
    for number, line in _lines(text):
        match = _TENSOR.search(line)
        if not match:
            continue
        place = f"{where}: line {number}"
        inside, bracket, _ = match[1].partition("]")
        fields = inside.split(",")
        if not bracket or not 4 <= len(fields) <= 5:
            raise UserError(f"{place}: needs [id, elements, backward_us, comm_us(, comm_us)], found [{inside[:60]}")
        tensor, elements = (int(_amount(field, place, whole=True)) for field in fields[:2])
        backward, *_ = (_amount(field, place) for field in fields[2:])
        if tensor == 0:
            blocks.append([])
        if not blocks or tensor != len(blocks[-1]):
            expected = len(blocks[-1]) if blocks else 0
            raise UserError(f"{place}: tensor {tensor} where {expected} was expected; the block is damaged")
        blocks[-1].append((elements, backward))
    if not blocks:
        raise UserError(f"{where}: holds no line of B-Caffe's distributed.cpp")
    lengths = {len(tensors) for tensors in blocks}
    if len(lengths) > 1:
        raise UserError(f"{where}: its blocks have {', '.join(map(str, sorted(lengths)))} tensors; the log is cut off")
    if block is None:
        measured = [i for i, tensors in enumerate(blocks) if any(backward for _, backward in tensors)]
        if not measured:
            raise UserError(f"{where}: all times are zero in its {len(blocks)} block(s); is it from a benchmark phase?")
        block = measured[-1] + 1
    if not 1 <= block <= len(blocks):
        raise UserError(f"{where}: has {len(blocks)} block(s), --block {block} is none of them")
    layers: list[list[tuple[int, int, float]]] = []
    for tensor, (elements, backward) in enumerate(blocks[block - 1]):
        if not (layers and len(layers[-1]) == 1 and layers[-1][0][2] == backward):
            layers.append([])
        layers[-1].append((tensor, elements, backward))
    profiles = []
    for layer in reversed(layers):
        elements = sum(count for _, count, _ in layer)
        name = "param " + "+".join(str(tensor) for tensor, _, _ in layer)
        profiles.append(LayerProfile(name, elements, elements * ALIGNED_ITEM_BYTES, layer[0][2] * 1e-6))
    backward_s = sum(profile.backward_s for profile in profiles)
    source = f"B-Caffe log {Path(where).name}, block {block}; forward taken as {forward_share:g} of backward"
    return Workload(Path(where).stem, batch_size, forward_share * backward_s, tuple(profiles), source)


def osu_network(text: str, where: str, *, ranks: int | None = None) -> dict[str, Any]:
    """The NETWORK object of an OSU all-reduce latency log: lines `size  average µs  …` or `ranks,size  average µs  …`.

    Columns after the second (minimum, maximum, iterations, validation of newer versions) are ignored. `ranks` overrides
    what the lines say; where neither says it, it is null.
    """
    points: list[tuple[float, float]] = []
    for number, line in _lines(text):
        fields = line.split()
        if not fields or not re.match(r"[-\d]", fields[0]):
            continue
        place = f"{where}: line {number}"
        *before, size = fields[0].split(",")
        if len(fields) < 2 or len(before) > 1:
            raise UserError(f"{place}: needs a size and a latency in µs, found {line.strip()[:60]!r}")
        found = int(_amount(before[0], place, whole=True)) if before else None
        ranks = ranks or found
        points.append((_amount(size, place, whole=True), _amount(fields[1], place) * 1e-6))
    return _network(points, where, f"OSU all-reduce log {Path(where).name}", ranks)


def nccl_network(text: str, where: str) -> dict[str, Any]:
    """The NETWORK object of nccl-tests' `all_reduce_perf` output, by its in-place times (the last `time` column, µs).

    The ranks are counted in the lines `#  Rank  0 …`; without them they are null.
    """
    points: list[tuple[float, float]] = []
    ranks, column = 0, None
    for number, line in _lines(text):
        fields = line.lstrip("# ").split()
        if line.lstrip().startswith("#"):
            ranks += bool(re.match(r"#\s*Rank\s+\d+", line.strip()))
            if fields[:1] == ["size"] and "time" in fields:
                column = len(fields) - 1 - fields[::-1].index("time")
            continue
        if not fields or not re.match(r"[-\d]", fields[0]):
            continue
        place = f"{where}: line {number}"
        if column is None:
            raise UserError(
                f"{place}: no heading with a 'time' column stands above it; give the whole output of all_reduce_perf"
            )
        if len(fields) <= column:
            raise UserError(f"{place}: {len(fields)} columns, the time is expected in column {column + 1}")
        points.append((_amount(fields[0], place, whole=True), _amount(fields[column], place) * 1e-6))
    return _network(points, where, f"nccl-tests log {Path(where).name}", ranks or None)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """(number from 1, line) without line ends, Windows' too."""
    return enumerate(text.splitlines(), start=1)


def _amount(text: str, where: str, whole: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise UserError(f"{where}: {kind} ≥ 0 was expected, found {text.strip()[:40]!r}")
    return value


def _network(points: list[tuple[float, float]], where: str, source: str, ranks: int | None) -> dict[str, Any]:
    """Sizes measured twice count by their mean; size 0 (a barrier) is left out."""
    by_size: dict[float, list[float]] = {}
    for size, seconds in points:
        if size > 0:
            by_size.setdefault(size, []).append(seconds)
    if len(by_size) < 2:
        raise UserError(f"{where}: holds {len(by_size)} measured size(s), two or more are needed")
    sizes = sorted(by_size)
    means = [sum(by_size[size]) / len(by_size[size]) for size in sizes]
    fit = fit_affine(sizes, means)
    return {
        "source": source,
        "ranks": ranks,
        "nbytes": [int(size) for size in sizes],
        "seconds": means,
        "a_s": fit.a,
        "b_s_per_byte": fit.b,
        "r2": fit.r2,
    }
