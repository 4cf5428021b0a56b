"""What a schedule is made for: a net's layer times and sizes, in gradient-ready order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from mgwfbp.errors import UserError
from mgwfbp.fields import number, whole


@dataclass(frozen=True)
class LayerProfile:
    """One layer that owns parameters, as measured.

    `parameters` is the number of trainable values; `nbytes` the bytes its gradients take in a message
    (padding included); `backward_s` the seconds from the moment the previous layer's gradient was ready
    (or backward began) to the moment this one's is; `forward_s` those from the start of its forward to the start of the
    next layer's (or the end of forward), None where it was not measured.
    """

    name: str
    parameters: int
    nbytes: int
    backward_s: float
    forward_s: float | None = None


@dataclass(frozen=True)
class Workload:
    """One iteration of one rank, without communication.

    `layers` stand in gradient-ready order: the layer nearest the loss first. `forward_s` is the time from the
    start of the iteration to the start of backward; `batch_size` is per rank; `source` says where it was measured.
    """

    name: str
    batch_size: int
    forward_s: float
    layers: tuple[LayerProfile, ...]
    source: str = ""

    @property
    def backward_s(self) -> float:
        """Seconds of the whole backward pass."""
        return sum(layer.backward_s for layer in self.layers)

    @property
    def nbytes(self) -> int:
        """Bytes of all gradients."""
        return sum(layer.nbytes for layer in self.layers)

    def ready_s(self) -> list[float]:
        """For each layer the time, from the start of backward, at which its gradient is ready (r of the DP)."""
        return list(accumulate(layer.backward_s for layer in self.layers))

    def forward_left_s(self) -> list[float]:
        """For each layer the seconds from the start of its forward to the end of the whole forward pass: q of the DPs.

        Forward goes from the last layer to layer 0, so q[i] is the forward time of the layers 0..i. Where a layer has
        no `forward_s`, all layers share `Workload.forward_s` in proportion to their backward times.
        """
        times = [layer.forward_s for layer in self.layers]
        if any(time is None for time in times):
            backward = self.backward_s
            share = self.forward_s / backward if backward > 0 else 0.0
            times = [layer.backward_s * share for layer in self.layers]
        # Rounding must not make the sum longer than the whole.
        return [min(left, self.forward_s) for left in accumulate(time or 0.0 for time in times)]

    def prefix_nbytes(self) -> list[int]:
        """S of the DP: S[j] is the bytes of the first j layers; length L + 1, S[0] = 0."""
        return [0, *accumulate(layer.nbytes for layer in self.layers)]


def workload_to_dict(workload: Workload) -> dict[str, Any]:
    """`workload` as the JSON object of a WORKLOAD file."""
    return {
        "name": workload.name,
        "source": workload.source,
        "batch_size": workload.batch_size,
        "forward_s": workload.forward_s,
        "layers": [
            {key: value for key, value in vars(layer).items() if value is not None} for layer in workload.layers
        ],
    }


def workload_from_dict(value: dict[str, Any], where: str) -> Workload:
    """The workload in the JSON object `value`; `where` (a file name) begins each error.

    Raises UserError for a missing key, a wrong type, a time or size that is negative or not finite, or no layers.
    """
    layers = value.get("layers")
    if not isinstance(layers, list) or not layers:
        raise UserError(f'{where}: "layers" must be a list with at least one layer')
    profiles = []
    for index, layer in enumerate(layers):
        place = f"{where}: layer {index}"
        if not isinstance(layer, dict):
            raise UserError(f"{place}: a JSON object was expected, found a {type(layer).__name__}")
        profiles.append(
            LayerProfile(
                name=str(layer.get("name", f"layer{index}")),
                parameters=whole(layer, "parameters", place),
                nbytes=whole(layer, "nbytes", place),
                backward_s=number(layer, "backward_s", place),
                forward_s=number(layer, "forward_s", place) if "forward_s" in layer else None,
            )
        )
    forward_s, forwards = number(value, "forward_s", where), [profile.forward_s for profile in profiles]
    if None not in forwards and sum(time or 0.0 for time in forwards) > forward_s * (1 + 1e-6):
        raise UserError(
            f"{where}: the layers' forward_s add up to {sum(time or 0.0 for time in forwards):g}, "
            f"the whole forward_s is {forward_s:g}"
        )
    return Workload(
        name=str(value.get("name", where)),
        batch_size=whole(value, "batch_size", where),
        forward_s=forward_s,
        layers=tuple(profiles),
        source=str(value.get("source", "")),
    )
