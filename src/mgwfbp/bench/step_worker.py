"""One side of `mgwfbp bench step`: a process that builds a net and takes a training step whenever it is told to.

    python -m mgwfbp.bench.step_worker SIDE MODEL BATCH THREADS        SIDE: fast, numpy, torch-nchw or torch-nhwc

It prints one JSON object a line: {"ready": …} when it has warmed up, then {"forward_s", "backward_s", "update_s"} for
each line of its input, and {"peak_nbytes"} at the end of it.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mgwfbp.kernels import keep_freed_memory, kernel_set, threads
from mgwfbp.models import build
from mgwfbp.net import Net, fuse
from mgwfbp.net.layers import Step
from mgwfbp.optim.sgd import SGD
from mgwfbp.plugins import load_inherited

Timed = Callable[[], tuple[float, float, float]]
LR, MOMENTUM, WEIGHT_DECAY = 1e-3, 0.9, 5e-4


def ours(net: Net, side: str, images: np.ndarray, labels: np.ndarray) -> Timed:
    """A step of this project: forward, backward, SGD over the whole arena."""
    fuse(net).allocate(kernels=kernel_set(side))
    keep_freed_memory()
    sgd = SGD(lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY).open(net.arena, net.kernels)

    def step() -> tuple[float, float, float]:
        start = time.perf_counter()
        net.forward(images, labels, Step())
        middle = time.perf_counter()
        net.backward()
        end = time.perf_counter()
        sgd.update([slice(0, len(net.arena.parameters))])
        return middle - start, end - middle, time.perf_counter() - end

    return step


def torchs(net: Net, side: str, images: np.ndarray, labels: np.ndarray, count: int) -> Timed:
    """A step of PyTorch eager on the same net, in the layout that `side` names."""
    import torch

    from mgwfbp.bench import torch_eager

    torch.set_num_threads(count)
    net.allocate(kernels=kernel_set("numpy"))
    layout = torch.channels_last if side == "torch-nhwc" else torch.contiguous_format
    p = {
        name: (value.detach().to(memory_format=layout) if value.ndim == 4 else value.detach()).requires_grad_()
        for name, value in torch_eager.parameters(net).items()
    }
    x = torch.from_numpy(images)
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous(memory_format=layout)
    y = torch.from_numpy(labels)
    sgd = torch.optim.SGD(p.values(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)

    def step() -> tuple[float, float, float]:
        sgd.zero_grad()
        start = time.perf_counter()
        loss = torch_eager.loss(net, p, x, y)
        middle = time.perf_counter()
        loss.backward()
        end = time.perf_counter()
        sgd.step()
        return middle - start, end - middle, time.perf_counter() - end

    return step


def main(side: str, model: str, batch: int, count: int) -> None:
    """Warm up, then a step a line of standard input."""
    load_inherited()
    net = build(model)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((batch, *net.input.shape), np.float32)
    labels = rng.integers(0, net.classes, batch)
    if side.startswith("torch"):
        step = torchs(net, side, images, labels, count)
    else:
        step = ours(net, side, images, labels)
    with threads(count):
        for _ in range(2):
            step()
        _say({"ready": side})
        for _ in sys.stdin:
            forward, backward, update = step()
            _say({"forward_s": forward, "backward_s": backward, "update_s": update})
    _say({"peak_nbytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024})


def _say(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
