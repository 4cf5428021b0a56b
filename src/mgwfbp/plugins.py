"""Files of one's own that register models, data sets, optimisers, policies, transports: `--plugin FILE.py`."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from pathlib import Path

from mgwfbp.errors import UserError

VARIABLE = "MGWFBP_PLUGIN"
_loaded: set[Path] = set()


def load_plugin(file: str) -> None:
    """Run the Python file `file`, once a process. Raises UserError, with its line, if it cannot be."""
    path = Path(file).resolve()
    if path in _loaded:
        return
    if not path.is_file():
        raise UserError(f"plugin {file}: there is no such file")
    name = f"mgwfbp_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"plugin {file}: it must be a Python file, FILE.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
        where = f"plugin {file}" + (f", line {line}" if line else "")
        raise UserError(f"{where}: {type(error).__name__}: {error}") from None
    _loaded.add(path)
    # For the processes that this one starts: `bench step` measures in others.
    os.environ[VARIABLE] = os.pathsep.join(map(str, sorted(_loaded)))


def load_inherited() -> None:
    """Run the files that the process before this one has run."""
    for file in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        load_plugin(file)
