"""PyTorch builds of layers and nets, for tests to compare with. Layouts: ours NHWC and HWIO, torch's NCHW and OIHW."""

from __future__ import annotations

import numpy as np
import torch

from mgwfbp.bench.torch_eager import NHWC_TO_NCHW, layout_of, parameters, to_torch

__all__ = ["NHWC_TO_NCHW", "distance", "from_torch", "layout_of", "lenet", "parameters", "resnet20", "to_torch"]

torch.set_num_threads(1)


def from_torch(tensor, layout=None):
    array = tensor.detach().numpy()
    return array if layout is None else array.transpose(np.argsort(layout))


def distance(ours, theirs):
    """Norm-wise relative difference."""
    return float(np.linalg.norm(ours - theirs) / max(np.linalg.norm(theirs), 1e-30))


def lenet(p, x):
    """Caffe's LeNet in torch.functional. The flattening is in our order: height, width, channels."""
    f = torch.nn.functional
    x = f.max_pool2d(f.conv2d(x, p["conv1/weight"], p["conv1/bias"]), 2)
    x = f.max_pool2d(f.conv2d(x, p["conv2/weight"], p["conv2/bias"]), 2)
    x = x.permute(0, 2, 3, 1).flatten(1)
    x = f.relu(f.linear(x, p["ip1/weight"], p["ip1/bias"]))
    return f.linear(x, p["ip2/weight"], p["ip2/bias"])


def resnet20(p, x):
    """ResNet-20 with option A in torch.functional."""
    f = torch.nn.functional

    def conv_bn(name, x, stride=1):
        x = f.conv2d(x, p[f"{name}/conv/weight"], stride=stride, padding=1)
        return f.batch_norm(x, None, None, p[f"{name}/bn/gamma"], p[f"{name}/bn/beta"], training=True)

    x = f.relu(conv_bn("stem", x))
    for stage, channels in enumerate((16, 32, 64), start=1):
        for number in (1, 2, 3):
            name, stride = f"stage{stage}/block{number}", 2 if stage > 1 and number == 1 else 1
            y = conv_bn(f"{name}/2", f.relu(conv_bn(f"{name}/1", x, stride)))
            if stride == 2:
                extra = (channels - x.shape[1]) // 2
                x = f.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, extra, extra))
            x = f.relu(x + y)
    return f.linear(x.mean((2, 3)), p["fc/weight"], p["fc/bias"])
