"""Environment variables that are ours by their name and mean nothing: a typo does not stay silent."""

from __future__ import annotations

import difflib
import os
import sys
from importlib import import_module

# What is read elsewhere than by an option: in the comm thread, the kernels, tests and batch scripts.
OTHERS = {
    "MGWFBP_COMPLETE", "MGWFBP_EXIT_S", "MGWFBP_FAULT", "MGWFBP_KERNELS", "MGWFBP_LAUNCHER", "MGWFBP_MATH",
    "MGWFBP_MAX_MESSAGE", "MGWFBP_ONEDNN", "MGWFBP_PLUGIN", "MGWFBP_POLL_US", "MGWFBP_SHARE_GPU", "MGWFBP_VENV",
}  # fmt: skip
# One of these tells that a launcher (hydra, Open MPI, PMIx) started this process as one rank of several.
LAUNCHED = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def not_first() -> bool:
    """Whether a launcher started this process as another rank than 0."""
    return any(os.environ.get(name, "0") != "0" for name in LAUNCHED)


def name_unknown(modules: list[str]) -> None:
    """Say on stderr, on one rank, which MGWFBP_* variables nobody reads.

    `modules` have the commands; they are imported as far as is needed to know the variables, the first one first.
    """
    unknown = sorted(name for name in os.environ if name.startswith("MGWFBP_") and name not in OTHERS)
    if not unknown or not_first():
        return
    known = set(OTHERS)
    for module in modules:
        if known.issuperset(unknown):
            return
        found = import_module(f"mgwfbp.cli.{module}").command
        commands = [found, *getattr(found, "commands", {}).values()]
        known.update(str(each.envvar) for command in commands for each in command.params if each.envvar)
    for name in unknown:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        hint = f"; did you mean {near[0]}?" if near else ""
        sys.stderr.write(f"mgwfbp: warning: {name} is set, and nothing here reads it{hint}\n")
