"""B-Caffe's training logs: the layers' backward times."""

from __future__ import annotations

import re
from pathlib import Path

from mgwfbp.errors import UserError
from mgwfbp.schedule import LayerProfile, Workload
from mgwfbp.simulate.logs.text import amount, lines

ALIGNED_ITEM_BYTES = 4  # B-Caffe sends float32

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
    for number, line in lines(text):
        match = _TENSOR.search(line)
        if not match:
            continue
        place = f"{where}: line {number}"
        inside, bracket, _ = match[1].partition("]")
        fields = inside.split(",")
        if not bracket or not 4 <= len(fields) <= 5:
            raise UserError(f"{place}: needs [id, elements, backward_us, comm_us(, comm_us)], found [{inside[:60]}")
        tensor, elements = (int(amount(field, place, whole=True)) for field in fields[:2])
        backward, *_ = (amount(field, place) for field in fields[2:])
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
