"""One rank of PyTorch DistributedDataParallel over gloo on one of our nets; started by shaped_network.py.

    python benchmarks/ddp_worker.py MODEL BATCH ITERATIONS BUCKET_MB

Rank 0 prints a JSON list: the seconds of each iteration, from the barrier before it to its slowest rank's update.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import torch
import torch.distributed as dist

from mgwfbp.bench import torch_eager
from mgwfbp.kernels import kernel_set
from mgwfbp.models import build


class Net(torch.nn.Module):
    """Our net as a module; parameters in forward order, as DDP expects them."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self.network = build(model).allocate(kernels=kernel_set("numpy"))
        named = list(torch_eager.parameters(self.network).items())[::-1]
        layout = torch.channels_last
        self.names = [name for name, _ in named]
        self.tensors = torch.nn.ParameterList(
            torch.nn.Parameter(t.detach().to(memory_format=layout) if t.ndim == 4 else t.detach()) for _, t in named
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The loss."""
        return torch_eager.loss(self.network, dict(zip(self.names, self.tensors, strict=True)), x, y)


def main(model: str, batch: int, iterations: int, bucket_mb: float) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    net = Net(model)
    ddp = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)
    sgd = torch.optim.SGD(ddp.parameters(), lr=0.0, momentum=0.9, weight_decay=5e-4)
    rng = np.random.default_rng(dist.get_rank())
    shape, classes = net.network.input.shape, net.network.classes
    x = torch.from_numpy(rng.standard_normal((batch, *shape), np.float32)).permute(0, 3, 1, 2)
    x = x.contiguous(memory_format=torch.channels_last)
    y = torch.from_numpy(rng.integers(0, classes, batch))
    seconds = []
    for number in range(iterations + 3):  # DDP makes its buckets anew after the first
        dist.barrier()
        start = time.perf_counter()
        sgd.zero_grad()
        ddp(x, y).backward()
        sgd.step()
        slowest = torch.tensor([time.perf_counter() - start])
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        if number >= 3:
            seconds.append(float(slowest))
    if dist.get_rank() == 0:
        print(json.dumps(seconds))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
