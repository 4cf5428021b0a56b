"""Evaluation of what was trained: rank 0 reads the weights, all ranks judge their part of the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgwfbp.comm import World, agree, share_weights
from mgwfbp.data import Data, Inputs, load
from mgwfbp.errors import UserError
from mgwfbp.runs.start import load_kernels
from mgwfbp.runs.trained import Weights, make, read_weights
from mgwfbp.train.evaluate import evaluate


def judge(
    world: World, where: str, data: str | None = None, folder: str | None = None, kernels: str | None = None
) -> dict[str, Any]:
    """Loss and accuracy of the weights in `where`, with what they are of; `data` in `folder` is the run's by default.

    Collective; equal on all ranks. Raises SharedError for what the user can mend.
    """
    used, weights = load_kernels(world, kernels), None
    with world.together():
        if world.rank == 0:
            weights = read_weights(where)
    about = world.comm.bcast(weights.about if weights else None, root=0)
    with world.together():
        options = about.get("options") or {}
        spec = data or options.get("data")
        if not spec:
            raise UserError(f"weights {where}: they do not say on which data they were trained; name it with --data")
        place = folder if folder or data else options.get("data_dir")
        skip = options.get("on_bad_image") == "skip"
        found = load(spec, place, int(options.get("seed", 0)), threads=world.threads, skip=skip)
        trained = make(weights or Weights(where, {}, about), kernels=used)
        names = found.inputs.class_names
        if (found.shape, names) != (trained.inputs.shape, trained.inputs.class_names):
            raise UserError(
                f"weights {where} are for images of {trained.inputs.shape} in {_few(trained.inputs.class_names)}, "
                f"{spec} has {found.shape} in {_few(names)}"
            )
    agree(world.comm, "data", [f"data {found.name}", f"files {found.fingerprint}"])
    share_weights(world, trained.net)
    loss, accuracy = evaluate(world, trained.net, AsTrained(found, trained.inputs))
    found.close()
    return {
        "model": trained.about["model"],
        "iteration": trained.about.get("iteration"),
        "data": found.name,
        "validated_on": found.validates,
        "samples": len(found.val_labels),
        "loss": loss,
        "accuracy": accuracy,
    }


class AsTrained:
    """`data`, but normalised as that was which the net was trained on."""

    def __init__(self, data: Data, inputs: Inputs) -> None:
        self.data, self.inputs = data, inputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)

    def normalised(self, images: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
        """`images` (uint8) as `dtype`."""
        return self.inputs.normalised(images, dtype)


def _few(names: tuple[str, ...]) -> str:
    return f"{len(names)} classes ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
