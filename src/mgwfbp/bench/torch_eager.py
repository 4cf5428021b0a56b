"""The same nets in PyTorch eager, layer by layer from the same description: to compare speed, and results in tests.

Layouts: ours are NHWC and HWIO, torch's are NCHW and OIHW. PyTorch is imported with this file, which only
`bench step --against torch` and the tests import.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mgwfbp.net import Net
from mgwfbp.runs.torch_names import layout_of

F = torch.nn.functional
NHWC_TO_NCHW = (0, 3, 1, 2)


def to_torch(array: np.ndarray, layout: tuple[int, ...] | None = None) -> torch.Tensor:
    """A torch tensor with gradient that holds a copy of `array`, its axes permuted by `layout`."""
    array = np.ascontiguousarray(array if layout is None else array.transpose(layout))
    return torch.from_numpy(array.copy()).requires_grad_()


def parameters(net: Net) -> dict[str, torch.Tensor]:
    """Every parameter of an allocated `net` as a tensor in torch's layout, by "layer/tensor"."""
    return {
        f"{layer.name}/{tensor.name}": to_torch(getattr(layer, tensor.name), layout_of(getattr(layer, tensor.name)))
        for layer in net.learnable
        for tensor in layer.parameters
    }


def loss(
    net: Net, p: dict[str, torch.Tensor], x: torch.Tensor, labels: torch.Tensor, *, same_masks: bool = False
) -> torch.Tensor:
    """The weighted sum of the losses of `net` in training, computed by torch from the parameters `p`.

    `x` is (batch, channels, height, width) or (batch, features). With `same_masks` Dropout's masks are those of our own
    forward before; otherwise torch draws its own.
    """
    values: dict[int, Any] = {0: x}
    for place, (layer, sources) in enumerate(zip(net.layers, net.sources, strict=True)):
        inputs = [values[source] for source in sources]
        values[place + 1] = _layer(layer, inputs[0] if len(inputs) == 1 else inputs, p, same_masks)
    return sum(
        (
            head.weight * F.cross_entropy(values[head.node], labels, label_smoothing=head.loss.smoothing)
            for head in net.heads
        ),
        start=torch.zeros((), dtype=x.dtype),
    )


def _layer(layer: Any, x: Any, p: dict[str, torch.Tensor], same_masks: bool) -> torch.Tensor:
    """The output of one layer in training."""

    def own(tensor: str) -> Any:
        return p.get(f"{layer.name}/{tensor}")

    match type(layer).__name__:
        case "Linear":
            return F.linear(x, own("weight"), own("bias"))
        case "Conv2d":
            return F.conv2d(x, own("weight"), own("bias"), layer.stride, layer.pad, 1, layer.groups)
        case "MaxPool2d":
            return F.max_pool2d(x, layer.kernel, layer.stride, layer.pad, ceil_mode=layer.ceil)
        case "AvgPool2d":
            return F.avg_pool2d(x, layer.kernel, layer.stride, layer.pad, layer.ceil, layer.include_pad)
        case "GlobalAvgPool":
            return x.mean((2, 3))
        case "ReLU":
            return F.relu(x)
        case "LRN":
            return F.local_response_norm(x, layer.size, layer.alpha, layer.beta, layer.k)
        case "Flatten":
            return x.permute(0, 2, 3, 1).flatten(1) if x.ndim == 4 else x
        case "Dropout" if same_masks:
            mask = np.ascontiguousarray(layer.mask if layer.mask.ndim < 4 else layer.mask.transpose(NHWC_TO_NCHW))
            return x * torch.from_numpy(mask)
        case "Dropout":
            return F.dropout(x, layer.rate)
        case "BatchNorm2d":
            return F.batch_norm(x, None, None, own("gamma"), own("beta"), True, eps=layer.epsilon)
        case "Add":
            y = x[0] + x[1]
            for more in x[2:]:
                y = y + more
            return y
        case "Concat":
            return torch.cat(x, 1)
        case "PadShortcut":
            before, after = layer.middle.start, layer.channels - layer.middle.stop
            return F.pad(x[:, :, :: layer.stride, :: layer.stride], (0, 0, 0, 0, before, after))
    raise NotImplementedError(f"{type(layer).__name__} has no counterpart in torch here")
