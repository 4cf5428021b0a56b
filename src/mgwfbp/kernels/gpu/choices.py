"""Which plan cuDNN's convolutions were done by, kept in files: chosen by a clock, and yet the same in the next run."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from mgwfbp.errors import UserError
from mgwfbp.files import read_json, write_json
from mgwfbp.kernels.gpu.cudnn import Shape


def kernel_cache() -> Path:
    """The folder in which CuPy keeps what it has compiled."""
    return Path(os.environ.get("CUPY_CACHE_DIR") or "~/.cupy/kernel_cache").expanduser()


class Choices:
    """The names of the plans that were taken, a small file a convolution, in `folder`, which is one card's.

    Ranks that choose at the same time agree: what was kept first counts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def kept(self, operation: str, shape: Shape) -> str | None:
        """The name of the plan that was taken before, if any."""
        try:
            name = read_json(self._path(operation, shape), "plan").get("plan")
        except UserError:  # not there, or not what was written
            return None
        return name if isinstance(name, str) else None

    def keep(self, operation: str, shape: Shape, seconds: Mapping[str, float], *, instead: bool = False) -> str:
        """Keep the name of the fastest plan of `seconds`, in the place of another if `instead`; returns what counts.

        Raises UserError where nothing can be written.
        """
        path, fastest = self._path(operation, shape), min(seconds, key=lambda name: seconds[name])
        own = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(own, {"operation": operation, **shape._asdict(), "plan": fastest, "seconds": dict(seconds)})
            try:
                if not instead:
                    os.link(own, path)  # which unlike a renaming fails where another rank was first
            except FileExistsError:
                pass
            except OSError:  # a file system without links
                instead = not path.exists()
            if instead:
                os.replace(own, path)
            own.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"{self.folder}: {error.strerror}") from None
        return self.kept(operation, shape) or fastest

    def _path(self, operation: str, shape: Shape) -> Path:
        text = hashlib.sha256(repr((operation, tuple(shape))).encode()).hexdigest()[:16]
        return self.folder / f"{operation.replace(' ', '-')}-{text}.json"
