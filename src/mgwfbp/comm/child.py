"""What is tried in a process of its own, because it may end it: a world of one rank, with the same MPI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from mgwfbp.comm.launch import without_launcher

CHECK_S = 60  # starting Python, CUDA and MPI takes some seconds, of a network's file system more


def device_check(device: int = 0) -> dict[str, Any]:
    """What a process of its own finds on CuPy's `device`: "works", and "error" if it does not."""
    found = in_a_process("mgwfbp.comm.gpu_check", str(device), wanted="works")
    if not found["works"]:
        found.setdefault("error", "what arrived was not what was sent")
    return found


def in_a_process(module: str, *arguments: str, wanted: str) -> dict[str, Any]:
    """The last JSON object with `wanted` that `python -m module` prints, in a process that is a world of its own.

    If there is none, or the process died, `wanted` is False, and "error" says why.
    """
    command, own = [sys.executable, "-m", module, *arguments], without_launcher(os.environ)
    try:
        done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=CHECK_S)
    except subprocess.TimeoutExpired:
        return {wanted: False, "error": f"nothing came back in {CHECK_S} s"}
    said: dict[str, Any] = {wanted: False, "error": "it said nothing"}
    for line in done.stdout.splitlines():  # MPI libraries and drivers print what they like
        try:
            value = json.loads(line)
        except ValueError:
            continue
        said = value if isinstance(value, dict) and wanted in value else said
    if done.returncode:
        last = next(reversed(done.stderr.strip().splitlines()), f"it ended with exit code {done.returncode}")
        said |= {wanted: False, "error": last}
        if done.returncode < 0:
            said["error"] = f"the process died of signal {-done.returncode}"
    return said
