"""mgwfbp predict"""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import numpy as np

from mgwfbp.cli.options import argument, examples, option, plugin
from mgwfbp.data import ENDINGS
from mgwfbp.errors import UserError
from mgwfbp.kernels import kernel_set
from mgwfbp.runs.trained import trained


@click.command(
    "predict",
    short_help="What a trained net sees in images.",
    **examples("""
        mgwfbp predict runs/resnet50 photo.jpg holiday/
        mgwfbp predict weights.safetensors digits.npy --top 1 --json
    """),
)
@argument("where", metavar="RUN|FILE")
@argument("images", nargs=-1, required=True, metavar="IMAGE…")
@plugin
@option("--top", default=5, type=click.IntRange(1), help="How many classes, the likeliest first.")
@option("--kernels", metavar="SET", help="numpy, fast or cupy.  [default: the fastest that works here]")
@option("--json", "as_json", is_flag=True, envvar=None, help="Print a JSON list, an object an image.")
def command(where: str, images: tuple[str, ...], top: int, kernels: str | None, as_json: bool) -> None:
    """The likeliest classes of images, by the net in a run folder or an exported file.

    An IMAGE is a file (.png, .jpg, …), an .npy file of uint8 (one image or several), or a folder of such files. It is
    cropped and scaled as for validation.
    """
    net = trained(where, kernels=kernel_set(kernels))
    names = net.inputs.class_names
    found: list[tuple[str, list[tuple[str, float]]]] = []
    for path in _files(images):
        seen = net.inputs.read(path)
        for number, chances in enumerate(net.predict(seen)):
            best = np.argsort(-chances, kind="stable")[:top]
            name = f"{path}[{number}]" if len(seen) > 1 else str(path)
            found.append((name, [(names[place], float(chances[place])) for place in best]))
    if as_json:
        listed = [
            {"image": name, "classes": [{"class": kind, "probability": chance} for kind, chance in likely]}
            for name, likely in found
        ]
        click.echo(json.dumps(listed, indent=1))
        return
    width = max((len(name) for name, _ in found), default=0)
    for name, likely in found:
        click.echo(f"{name:<{width}}  " + "  ".join(f"{kind} {chance:.1%}" for kind, chance in likely))


def _files(given: tuple[str, ...]) -> list[Path]:
    """The files that are named, and those in the folders that are, by name. Raises UserError for an empty folder."""
    found: list[Path] = []
    for path in map(Path, given):
        if not os.path.isdir(path):
            found.append(path)
            continue
        inside = sorted(
            entry for entry in path.iterdir() if entry.suffix.lower() in ENDINGS | {".npy"} and entry.name[0] != "."
        )
        if not inside:
            raise UserError(f"image {path}: the folder holds no image ({' '.join(sorted(ENDINGS))} .npy)")
        found += inside
    return found
