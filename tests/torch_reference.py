"""PyTorch builds of layers and nets, for tests to compare with. Layouts: ours NHWC and HWIO, torch's NCHW and OIHW."""

from __future__ import annotations

import numpy as np
import torch

from mgwfbp.network import Network

torch.set_num_threads(1)


def to_torch(array, layout=None):
    """A torch tensor with gradient; `layout` is the permutation to torch's order."""
    array = np.ascontiguousarray(array if layout is None else array.transpose(layout))
    return torch.from_numpy(array.copy()).requires_grad_()


NHWC_TO_NCHW, HWIO_TO_OIHW = (0, 3, 1, 2), (3, 2, 0, 1)


def from_torch(tensor, layout=None):
    array = tensor.detach().numpy()
    return array if layout is None else array.transpose(np.argsort(layout))


def distance(ours, theirs):
    """Norm-wise relative difference."""
    return float(np.linalg.norm(ours - theirs) / max(np.linalg.norm(theirs), 1e-30))


def layout_of(array):
    return HWIO_TO_OIHW if array.ndim == 4 else (1, 0) if array.ndim == 2 else None


def parameters(net: Network) -> dict[str, torch.Tensor]:
    """Every parameter of `net` as a torch tensor in torch's layout, by "layer/tensor"."""
    return {
        f"{layer.name}/{tensor.name}": to_torch(getattr(layer, tensor.name), layout_of(getattr(layer, tensor.name)))
        for layer in net.learnable
        for tensor in layer.parameters
    }


def graph(net: Network, p, x, labels):
    """The weighted sum of the losses of any of our nets in training, layer by layer in torch.functional.

    `net` has just run forward on the same input: Dropout's masks are taken from it.
    """
    f = torch.nn.functional
    values = {0: x}

    def run(layer, x, name):
        def get(tensor):
            return p.get(f"{name}/{tensor}")

        match type(layer).__name__:
            case "Linear":
                return f.linear(x, get("weight"), get("bias"))
            case "Conv2d":
                return f.conv2d(x, get("weight"), get("bias"), layer.stride, layer.pad, 1, layer.groups)
            case "MaxPool2d":
                return f.max_pool2d(x, layer.kernel, layer.stride, layer.pad, ceil_mode=layer.ceil)
            case "AvgPool2d":
                return f.avg_pool2d(x, layer.kernel, layer.stride, layer.pad, layer.ceil, layer.include_pad)
            case "GlobalAvgPool":
                return x.mean((2, 3))
            case "ReLU":
                return f.relu(x)
            case "LRN":
                return f.local_response_norm(x, layer.size, layer.alpha, layer.beta, layer.k)
            case "Flatten":
                return x.permute(0, 2, 3, 1).flatten(1) if x.ndim == 4 else x
            case "Dropout":
                mask = np.ascontiguousarray(layer.mask if layer.mask.ndim < 4 else layer.mask.transpose(NHWC_TO_NCHW))
                return x * torch.from_numpy(mask)
            case "BatchNorm2d":
                return f.batch_norm(x, None, None, get("gamma"), get("beta"), True, eps=layer.epsilon)
            case "Add":
                return sum(x)
            case "Concat":
                return torch.cat(x, 1)
            case "PadShortcut":
                before = layer.middle.start
                after = layer.channels - layer.middle.stop
                return f.pad(x[:, :, :: layer.stride, :: layer.stride], (0, 0, 0, 0, before, after))
        raise NotImplementedError(type(layer).__name__)

    for place, (layer, sources) in enumerate(zip(net.layers, net.sources, strict=True)):
        inputs = [values[source] for source in sources]
        values[place + 1] = run(layer, inputs[0] if len(inputs) == 1 else inputs, layer.name)
    return sum(
        head.weight * f.cross_entropy(values[head.node], labels, label_smoothing=head.loss.smoothing)
        for head in net.heads
    )


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
