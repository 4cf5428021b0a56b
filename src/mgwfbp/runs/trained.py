"""Using what was trained: a net out of a run folder, a checkpoint or a file of weights, with what it wants to see.

net = trained("runs/lenet")
net.predict(net.inputs.read(Path("photo.jpg")))      # (1, classes), probabilities
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from mgwfbp.data import Data, Inputs, inputs_from_dict
from mgwfbp.errors import UserError
from mgwfbp.files import parse_json, write_bytes
from mgwfbp.kernels import Kernels, kernel_set
from mgwfbp.models import build
from mgwfbp.net import Net, Place, at_places, begin_with, fuse, tensors, to_host
from mgwfbp.net.layers import Step
from mgwfbp.runs.checkpoint import Checkpoint, newest
from mgwfbp.runs.torch_names import note_for, torch_tensors
from mgwfbp.version import __version__

CHUNK = 64  # images at a time
MANY = 1e4  # a difference of logits beyond which a probability is 0 anyway


class Weights(NamedTuple):
    """Tensors by name ("conv1.weight"), and what is known of them: model, input, options, iteration; `where` from."""

    where: str
    tensors: Mapping[str, np.ndarray]
    about: Mapping[str, Any]


class Trained:
    """A trained `net`, the `inputs` that it wants to see, and what is known `about` it: model, options, iteration."""

    def __init__(self, net: Net, inputs: Inputs | Data, about: Mapping[str, Any] | None = None) -> None:
        self.net, self.about = net, {"model": net.name, **(about or {})}
        self.inputs = inputs if isinstance(inputs, Inputs) else inputs.inputs

    def predict(self, images: np.ndarray) -> np.ndarray:
        """The probability of each class (samples, classes) for `images`, uint8 (samples, height, width, channels).

        Raises UserError for another type or shape.
        """
        images, found = self.inputs.check(np.asarray(images)), []
        for start in range(0, len(images), CHUNK):
            seen = self.inputs.normalised(images[start : start + CHUNK], self.net.arena.parameters.dtype)
            logits = to_host(self.net.logits(seen, Step(training=False))[-1]).astype(np.float64)
            powers = np.exp(np.maximum(logits - logits.max(axis=1, keepdims=True), -MANY))
            found.append(powers / powers.sum(axis=1, keepdims=True))
        return np.concatenate(found) if found else np.empty((0, self.net.classes))

    def export(self, path: str | Path, *, torch: bool = False) -> str | None:
        """Write the weights as safetensors, with all that is known of them as JSON texts in its metadata.

        With `torch` the names and layouts are those of a PyTorch module whose parts are called like our layers, or
        torchvision's where there is such a net; returns what must be known to load them, if there is something.
        Raises UserError if the file cannot be written.
        """
        arrays = torch_tensors(self.net) if torch else {name: to_host(each) for name, each in tensors(self.net).items()}
        about = {**self.about, "input": self.inputs.to_dict(), "mgwfbp": __version__}
        note = note_for(self.net) if torch else None
        metadata = {key: value if isinstance(value, str) else json.dumps(value) for key, value in about.items()}
        metadata |= {"format": "pt" if torch else "mgwfbp", **({"note": note} if note else {})}
        write_bytes(path, save({name: np.ascontiguousarray(each) for name, each in arrays.items()}, metadata))
        return note


def trained(where: str | Path, *, net: Net | None = None, kernels: Kernels | None = None) -> Trained:
    """The net that a run folder, a checkpoint's folder or an exported file has; of a run, its newest checkpoint.

    `net` is needed where the model has no name here: it is then given the weights. Raises UserError.
    """
    return make(read_weights(where), net=net, kernels=kernels)


def make(weights: Weights, *, net: Net | None = None, kernels: Kernels | None = None) -> Trained:
    """The net of `weights`, built by its model's name unless it is given. Raises UserError."""
    inputs = inputs_from_dict(weights.about.get("input"), f"weights {weights.where}")
    if net is None:
        model = str(weights.about.get("model"))
        net = build(model, inputs.shape, len(inputs.class_names))
        net.name = model
    if not net.allocated:
        fuse(net).allocate(kernels=kernels or kernel_set())
    if weights.tensors:
        begin_with(net, weights.tensors, weights.where)
    known = {key: weights.about[key] for key in ("model", "options", "iteration") if key in weights.about}
    return Trained(net, inputs, known)


def load_weights(net: Net, where: str | Path, *, but: tuple[str, ...] = (), seed: int = 1) -> Net:
    """Let `net` begin with the weights of `where`, as in `trained`, by name and shape; the layers `but` begin anew.

        load_weights(net, "runs/lenet", but=("ip2",))

    Allocates the net if it is not yet, its initial values by `seed`. Returns it. Raises UserError.
    """
    if not net.allocated:
        fuse(net).allocate(seed=seed)
    begin_with(net, read_weights(where).tensors, str(where), but=but)
    return net


def read_weights(where: str | Path) -> Weights:
    """The weights of a run folder (its newest checkpoint), a checkpoint's folder, or an exported .safetensors file.

    Raises UserError if there are none, or none that say their names.
    """
    place = Path(where).expanduser()
    if os.path.isfile(place):
        return _of_file(place)
    found = newest(place)
    if found is None:
        raise UserError(f"{where}: no run folder with a checkpoint, and no file of weights")
    return of_checkpoint(found)


def of_checkpoint(found: Checkpoint) -> Weights:
    """Its weights: BatchNorm's statistics are the mean over the ranks. Raises UserError if it does not name them."""
    record, states = found.record, found.arrays["state"]
    if not isinstance(record.get("tensors"), dict):
        raise UserError(f"checkpoint {found.path}: an older version wrote it, without the names of its tensors")
    # The mean of equal numbers need not be that number, to the last bit.
    state = states[0] if (states == states[0]).all() else states.mean(axis=0)
    try:
        places = {name: Place(array, start, tuple(shape)) for name, (array, start, shape) in record["tensors"].items()}
        named = at_places(places, {**found.arrays, "state": state})
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"checkpoint {found.path}: the places of its tensors are damaged ({error})") from None
    options = record.get("config")
    if not isinstance(options, dict):
        raise UserError(f"checkpoint {found.path}: it lacks the run's config")
    about = {"model": options.get("model"), "options": options, "iteration": found.iteration}
    return Weights(str(found.path), named, {**about, "input": record.get("input")})


def _of_file(path: Path) -> Weights:
    try:
        with safe_open(path, "np") as file:
            metadata, named = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise UserError(f"weights {path}: not a file of safetensors ({error})") from None
    except (TypeError, AttributeError) as error:  # bfloat16 and smaller ones, which NumPy does not have
        raise UserError(
            f"weights {path}: of a type that NumPy does not have ({error}); store them as float32"
        ) from None
    if metadata.get("format") == "pt":
        raise UserError(f"weights {path}: exported for PyTorch, in its layouts; export again without --torch")
    about: dict[str, Any] = dict(metadata)
    for key in ("input", "options"):
        if key in about:
            about[key] = parse_json(about[key], f"weights {path}: {key}")
    if about.get("iteration", "").isdecimal():
        about["iteration"] = int(about["iteration"])
    return Weights(str(path), named, about)
