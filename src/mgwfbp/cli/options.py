"""How options are declared here: every one has an environment variable, MGWFBP_ and its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """`click.option` whose default can also come from MGWFBP_NAME (MGWFBP_BATCH_SIZE), with the default in --help."""
    (long,) = (name for name in names if name.startswith("--"))
    settings.setdefault("envvar", "MGWFBP_" + long.lstrip("-").replace("-", "_").upper())
    settings.setdefault("show_default", True)
    return click.option(*names, **settings)


def examples(text: str) -> dict[str, Any]:
    """The part of a command's settings that prints `text`, unwrapped, as examples below its --help."""
    return {"epilog": "\b\nExamples:\n" + "\n".join(f"  {line.strip()}" for line in text.strip().splitlines())}
