"""Published figures that the project carries in its own file formats; each file names its source."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from mgwfbp.files import parse_json


def shipped(kind: str) -> list[str]:
    """The names of the shipped files of `kind`: "workload", "network", "paper" or "independent"."""
    suffix = f".{kind}.json"
    return sorted(entry.name.removesuffix(suffix) for entry in files(__name__).iterdir() if entry.name.endswith(suffix))


def read_shipped(kind: str, name: str) -> dict[str, Any]:
    """The JSON object of a shipped file; `name` is one of `shipped(kind)`."""
    entry = files(__name__) / f"{name}.{kind}.json"
    return parse_json(entry.read_text(encoding="utf-8"), f"shipped {kind} {name}")
