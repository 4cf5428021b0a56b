"""Layer times without a machine: an estimate from each layer's floating-point operations and bytes.

A layer takes the longer of its operations at the device's reachable rate and its bytes at the reachable bandwidth, plus
a launch (the roofline model of Williams, Waterman and Patterson, 2009). The efficiencies are guesses, stated in the
device's file; where the total of a net is known from a measurement, all times are scaled to it, so that only the
division over the layers is estimated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from math import prod
from typing import Any

from mgwfbp.errors import UserError, unknown_name
from mgwfbp.fields import number
from mgwfbp.files import parse_toml, read_toml
from mgwfbp.net import ALIGNMENT, Net
from mgwfbp.net.layers import Conv2d, Layer, Linear
from mgwfbp.schedule import LayerProfile, Workload

ITEM = 4  # bytes of a float32


@dataclass(frozen=True)
class Device:
    """A device as the roofline sees it. Rates per second; efficiencies are shares of them; `overhead_s` a launch.

    `totals` maps a model to a measured {"batch_size", "seconds", "source"} of its forward and backward pass.
    """

    name: str
    source: str
    peak_flops: float
    bandwidth: float
    flops_efficiency: float
    bandwidth_efficiency: float
    overhead_s: float
    totals: dict[str, dict[str, Any]] = field(default_factory=dict)

    def seconds(self, flops: float, nbytes: float) -> float:
        """The time of one kernel."""
        compute = flops / (self.peak_flops * self.flops_efficiency)
        return max(compute, nbytes / (self.bandwidth * self.bandwidth_efficiency)) + self.overhead_s


def devices() -> list[str]:
    """The names of the device models that come with the project."""
    return sorted(
        entry.name[:-5] for entry in files("mgwfbp.bench").joinpath("devices").iterdir() if ".toml" in entry.name
    )


def load_device(spec: str) -> Device:
    """The device model of that name, or in the TOML file of that path. Raises UserError."""
    if spec in devices():
        where = f"device {spec}"
        value = parse_toml(files("mgwfbp.bench").joinpath("devices", f"{spec}.toml").read_text("utf-8"), where)
    elif "." in spec or "/" in spec:
        where, value = f"device file {spec}", read_toml(spec, "device file")
    else:
        raise unknown_name("device model", spec, [*devices(), "FILE.toml"])
    rates = ("peak_flops", "bandwidth", "flops_efficiency", "bandwidth_efficiency")
    figures = {key: number(value, key, where) for key in (*rates, "overhead_s")}
    zero = [key for key in rates if figures[key] == 0]
    if zero:
        raise UserError(f'{where}: "{zero[0]}" must be above 0')
    totals = value.get("totals", {})
    if not isinstance(totals, dict) or not all(isinstance(total, dict) for total in totals.values()):
        raise UserError(f"{where}: [totals.MODEL] must be tables with batch_size and seconds")
    for model, total in totals.items():
        for key in ("batch_size", "seconds"):
            if number(total, key, f"{where}: totals.{model}") == 0:
                raise UserError(f'{where}: totals.{model}: "{key}" must be above 0')
    return Device(str(value.get("name", spec)), str(value.get("source", "")), **figures, totals=totals)


def estimate(net: Net, batch_size: int, device: Device) -> Workload:
    """The workload of `net` at `batch_size` on `device`, each layer's times estimated; `source` says so.

    Layers without parameters are counted with the next one in gradient-ready order, as a measured profile has it.
    """
    forward, backward = 0.0, 0.0
    profiles = []
    for layer, sources, out in zip(net.layers, net.sources, net.shapes[1:], strict=True):
        forward += device.seconds(*_forward(layer, [net.shapes[s] for s in sources], out, batch_size))
    for place in reversed(range(len(net.layers))):
        layer, sources = net.layers[place], net.sources[place]
        if not net.needs_gradient[place + 1]:
            continue
        flops, nbytes = _forward(layer, [net.shapes[s] for s in sources], net.shapes[place + 1], batch_size)
        if layer.parameters and isinstance(layer, Conv2d | Linear):
            backward += device.seconds(flops, nbytes)  # the weight's gradient: as many operations as forward
        else:
            nbytes *= 1.5  # dy is read beside what forward kept
        if layer.parameters:
            count = sum(prod(tensor.shape) for tensor in layer.parameters)
            padded = sum(-(-prod(tensor.shape) // ALIGNMENT) * ALIGNMENT for tensor in layer.parameters)
            profiles.append(LayerProfile(layer.name, count, padded * ITEM, backward))
            backward = 0.0
        if any(net.needs_gradient[source] for source in sources):
            backward += device.seconds(flops, nbytes)  # the input's gradient
    source = (
        f"estimate, not measured: roofline of {device.name} ({device.peak_flops * device.flops_efficiency / 1e12:.2f} "
        f"Tflop/s, {device.bandwidth * device.bandwidth_efficiency / 1e9:.0f} GB/s reachable)"
    )
    workload = Workload(net.name, batch_size, forward, tuple(profiles), source)
    total = device.totals.get(net.name)
    if not total:
        return workload
    seconds = total["seconds"] * batch_size / total["batch_size"]
    scale = seconds / (forward + workload.backward_s)
    layers = tuple(LayerProfile(p.name, p.parameters, p.nbytes, p.backward_s * scale) for p in profiles)
    note = f"{source}, scaled to a measured total of {seconds:.4f} s ({total.get('source', 'source not stated')})"
    return Workload(net.name, batch_size, forward * scale, layers, note)


def _forward(layer: Layer, inputs: list[tuple[int, ...]], out: tuple[int, ...], batch: int) -> tuple[float, float]:
    """(floating-point operations, bytes moved) of the layer's forward pass; a multiply-add counts as two."""
    moved = batch * (sum(prod(shape) for shape in inputs) + prod(out))
    weights = sum(prod(tensor.shape) for tensor in layer.parameters)
    if isinstance(layer, Conv2d | Linear):
        weight = layer.parameters[0].shape
        places = prod(out) // out[-1]  # of one sample; a GEMM has one
        return 2.0 * batch * places * prod(weight), ITEM * (moved + weights)
    return 5.0 * moved, ITEM * (moved + weights)
