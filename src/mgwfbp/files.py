"""Read TOML, read and write JSON: one-line errors on the way in, whole files or none on the way out."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from mgwfbp.errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """The table in the TOML file `path`; `what` names the kind of file in errors.

    Raises UserError if the file is missing, unreadable or not TOML.
    """
    return parse_toml(_read_text(path, what, "TOML"), f"{what} {path}")


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The table that `text` holds. Raises UserError, beginning with `where`, if it is not TOML."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not TOML ({error})") from None


def read_json(path: str | Path, what: str) -> dict[str, Any]:
    """The JSON object in `path`; `what` names the kind of file in errors ("network file").

    Raises UserError if the file is missing, unreadable, not JSON, or holds something other than an object.
    """
    return parse_json(_read_text(path, what, "a JSON object"), f"{what} {path}")


def _read_text(path: str | Path, what: str, expected: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{what} {path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise UserError(f"{what} {path}: not a text file, {expected} was expected") from None
    except ValueError as error:  # a name with a zero byte
        raise UserError(f"{what} {str(path)!r}: cannot be read ({error})") from None


def parse_json(text: str, where: str) -> dict[str, Any]:
    """The JSON object that `text` holds. Raises UserError, beginning with `where`, if it holds none."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON (line {error.lineno}: {error.msg})") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number of more digits than Python reads
        raise UserError(f"{where}: cannot be read as JSON ({error})") from None
    if not isinstance(value, dict):
        raise UserError(f"{where}: a JSON object was expected, found a {type(value).__name__}")
    return value


def write_text(path: str | Path, text: str) -> None:
    """Write `text` as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write `data` to `path` whole or not at all: to a temporary name in the same folder, then renamed.

    A link is followed; what is no regular file (a pipe) is written into, and so is what is open already: `-` and
    /dev/stdout are standard output, behind what was printed. Raises UserError if the folder does not exist or cannot
    be written.
    """
    place = Path(os.path.realpath(path))
    temporary = ""
    try:
        if (descriptor := _descriptor(path)) is not None:
            sys.stdout.flush()
            with os.fdopen(os.dup(descriptor), "wb") as stream:
                stream.write(data)
            return
        if _is_special(path):
            Path(path).write_bytes(data)
            return
        descriptor, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, file_mode())  # mkstemp makes it private
        os.replace(temporary, place)
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None


def _descriptor(path: str | Path) -> int | None:
    """The descriptor that `path` names, if it is one: opened by its name, a file would be written from its start."""
    name = {"-": "/dev/fd/1", "/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}.get(str(path), str(path))
    found = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", name)
    return int(found[1]) if found else None


def _is_special(path: str | Path) -> bool:
    """Whether it is there and no regular file. The name as it is: resolved, a pipe's is one that nothing has."""
    return os.path.exists(path) and not os.path.isfile(path)


def file_mode() -> int:
    """The mode that this process's umask gives a new file."""
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def check_writable(path: str | Path) -> None:
    """Raise UserError if `path` cannot become a file: said before hours of measurement, not after them."""
    if _descriptor(path) is not None or (_is_special(path) and not Path(path).is_dir()):
        return
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise UserError(f"{path}: cannot be written (the folder {folder} does not exist)")
    if Path(path).is_dir():
        raise UserError(f"{path}: cannot be written (it is a folder)")
    if not os.access(folder, os.W_OK):
        raise UserError(f"{path}: cannot be written (no right to write in {folder})")


def write_json(path: str | Path, value: dict[str, Any]) -> None:
    """Write `value` as indented JSON to `path`, whole or not at all. Raises UserError as `write_text` does."""
    write_text(path, json_text(value, indent=1) + "\n")


def json_text(value: Any, indent: int | None = None) -> str:
    """`value` as JSON that every parser reads: NaN and ±inf, which JSON does not have, become null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
