"""Values in what a user wrote: numbers in JSON objects, KEY=VALUE lists, sizes and times with units."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from mgwfbp.errors import UserError, unknown_name

LARGEST = 1e18  # bytes or seconds; what is larger is a mistake, and its sums would overflow


def number(value: Mapping[str, Any], key: str, where: str) -> float:
    """The finite number ≥ 0 at `key` of a JSON object. Raises UserError, beginning with `where`, if it is none."""
    if key not in value:
        raise UserError(f'{where}: "{key}" is missing')
    found = value[key]
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise UserError(f'{where}: "{key}" must be a number, found {str(found)[:40]!r}')
    try:
        result = float(found)
    except OverflowError:
        result = math.inf
    if not 0 <= result <= LARGEST:
        raise UserError(f'{where}: "{key}" must be a finite number ≥ 0, at most {LARGEST:g}, found {result:g}')
    return result


def whole(value: Mapping[str, Any], key: str, where: str) -> int:
    """The whole number ≥ 0 at `key` of a JSON object. Raises UserError, beginning with `where`, if it is none."""
    result = number(value, key, where)
    if result != int(result):
        raise UserError(f'{where}: "{key}" must be a whole number, found {result}')
    return int(result)


def assignments(text: str, where: str, keys: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, str]:
    """The values of `key=value,key=value`, which must name all of `keys` and may name `optional` ones.

    Raises UserError, beginning with `where`, for anything else.
    """
    found: dict[str, str] = {}
    for part in text.split(",") if text else []:
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals:
            raise UserError(f"{where}: {part!r} is not of the form KEY=VALUE")
        if key not in keys + optional:
            raise unknown_name(f"key in {where}:", key, keys + optional)
        if key in found:
            raise UserError(f"{where}: {key} is given twice")
        found[key] = value.strip()
    missing = [key for key in keys if key not in found]
    if missing:
        raise UserError(f"{where}: {', '.join(missing)} missing; it takes {', '.join(keys + optional)}")
    return found


_TIME = re.compile(r"(-?\d+(?:\.\d*)?(?:e-?\d+)?)\s*(s|ms|us|µs|ns|ps)?", re.IGNORECASE)
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "ps": 1e-12}


def seconds_from_text(text: str, where: str) -> float:
    """Seconds in `text`: "45us", "2.5ns", "1e-4". Raises UserError, beginning with `where`, if it is no time ≥ 0."""
    match = _TIME.fullmatch(text)
    if not match:
        raise UserError(f"{where}: {text!r} is no time; write seconds as 45us, 2.5ns or 1e-4")
    seconds = float(match[1]) * _SECONDS[(match[2] or "").lower()]
    if not 0 <= seconds <= LARGEST:
        raise UserError(f"{where}: must be a finite time ≥ 0, found {text}")
    return seconds


_SIZE = re.compile(r"(\d+(?:\.\d*)?(?:e\d+)?)\s*([kmg]i?)?b?", re.IGNORECASE)
_FACTOR = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def bytes_from_text(text: str, where: str) -> int:
    """Bytes in `text`: "25MiB", "64 kB", "1e6". Raises UserError, beginning with `where`, if it is no size ≥ 1."""
    match = _SIZE.fullmatch(text.strip())
    nbytes = float(match[1]) * _FACTOR[(match[2] or "").lower()] if match else 0.0
    if not 1 <= nbytes < 2**63:
        raise UserError(f"{where}: {text!r} is no size; write bytes as 25MiB, 64kB or 1000000")
    return int(nbytes)
