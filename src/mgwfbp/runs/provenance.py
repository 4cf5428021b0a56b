"""Where a run comes from: versions, hosts, when, and which options differ from the defaults."""

from __future__ import annotations

import platform
import shlex
import socket
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from mgwfbp.comm import World
from mgwfbp.comm.library import mpi_version
from mgwfbp.runs.config import Config
from mgwfbp.version import __version__


def provenance(world: World) -> dict[str, Any]:
    """Versions, hosts with their numbers of ranks, and the time, as a JSON object. Collective; on rank 0."""
    hosts = world.comm.gather(socket.gethostname(), root=0) or []
    return {
        "mgwfbp": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "mpi": mpi_version(),
        "hosts": dict(Counter(hosts)),
        "began": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def heading(about: Mapping[str, Any]) -> str:
    """One line of `provenance`'s object."""
    hosts = about["hosts"]
    named = ", ".join(f"{host} ({ranks})" for host, ranks in list(hosts.items())[:4])
    more = f", … {len(hosts)} hosts" if len(hosts) > 4 else ""
    return (
        f"mgwfbp {about['mgwfbp']}, Python {about['python']}, NumPy {about['numpy']}, {about['mpi']}; "
        f"{about['began'].replace('T', ' ')} on {named}{more}"
    )


def said(options: Mapping[str, Any]) -> str:
    """The command line that says which of a Config's `options` differ from the defaults."""
    words, usual = [str(options["model"])], Config("").to_dict()
    for name, value in options.items():
        if name == "model" or name not in usual or value == usual[name]:
            continue
        flag = f"--{name.replace('_', '-')}"
        words += [flag] if value is True else [flag, shlex.quote(str(value))]
    return " ".join(words)
