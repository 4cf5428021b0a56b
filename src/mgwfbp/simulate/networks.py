"""The network SPEC of the command line: a file, a line, a formula or one of the paper's clusters.

network.json                                              what `mgwfbp bench allreduce -o` wrote
a=633.5us,b=3.92ns                                        seconds a message, seconds a byte
ring:alpha=45.25us,beta=0.993ns,gamma=2.5ns,nodes=64      one of five algorithms
k80-10gbe:64                                              a preset and its number of nodes
"""

from __future__ import annotations

import re
from typing import Any

from mgwfbp.errors import UserError, unknown_name
from mgwfbp.files import read_json
from mgwfbp.schedule import AffineCost, TableCost
from mgwfbp.schedule.clusters import ALGORITHMS, PRESETS
from mgwfbp.schedule.workload import number

_TIME = re.compile(r"(-?\d+(?:\.\d*)?(?:e-?\d+)?)\s*(s|ms|us|µs|ns|ps)?", re.IGNORECASE)
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "ps": 1e-12}


def cost_from_spec(spec: str) -> AffineCost | TableCost:
    """The all-reduce cost that a network SPEC stands for. Raises UserError that names the part that is wrong."""
    where = f"network {spec!r}"
    name, colon, rest = spec.partition(":")
    if name in PRESETS:
        return PRESETS[name](_nodes(rest, where))
    if name in ALGORITHMS:
        values = _assignments(rest, where, ("alpha", "beta", "gamma", "nodes"))
        times = [_time(values[key], f"{where}: {key}") for key in ("alpha", "beta", "gamma")]
        return ALGORITHMS[name](_nodes(values["nodes"], where), *times)
    if "=" in spec and not colon and not spec.endswith(".json"):
        values = _assignments(spec, where, ("a", "b"))
        return AffineCost(_time(values["a"], f"{where}: a"), _time(values["b"], f"{where}: b"))
    if colon or not re.search(r"[./]", spec):
        raise unknown_name("network", name, [*PRESETS, *ALGORITHMS])
    return cost_from_dict(read_json(spec, "network file"), f"network file {spec}")


def cost_from_dict(value: dict[str, Any], where: str) -> AffineCost | TableCost:
    """The cost in a NETWORK object: its table, or else its line. Raises UserError that begins with `where`."""
    if "nbytes" in value or "seconds" in value:
        columns: list[tuple[float, ...]] = []
        for key in ("nbytes", "seconds"):
            column = value.get(key)
            if not isinstance(column, list):
                raise UserError(f'{where}: "{key}" must be a list of numbers')
            columns.append(tuple(number({key: item}, key, where) for item in column))
        try:
            return TableCost(*columns)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
    return AffineCost(number(value, "a_s", where), number(value, "b_s_per_byte", where))


def _assignments(text: str, where: str, keys: tuple[str, ...]) -> dict[str, str]:
    """`key=value,key=value` with exactly `keys`."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals:
            raise UserError(f"{where}: {part!r} is not of the form KEY=VALUE")
        if key not in keys:
            raise unknown_name(f"key in {where}:", key, keys)
        if key in found:
            raise UserError(f"{where}: {key} is given twice")
        found[key] = value.strip()
    missing = [key for key in keys if key not in found]
    if missing:
        raise UserError(f"{where}: {', '.join(missing)} missing; it takes {', '.join(keys)}")
    return found


def _time(text: str, where: str) -> float:
    match = _TIME.fullmatch(text)
    if not match:
        raise UserError(f"{where}: {text!r} is no time; write seconds as 45us, 2.5ns or 1e-4")
    seconds = float(match[1]) * _SECONDS[(match[2] or "").lower()]
    if not 0 <= seconds < float("inf"):
        raise UserError(f"{where}: must be a finite time ≥ 0, found {text}")
    return seconds


def _nodes(text: str, where: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10**9:
        raise UserError(f"{where}: the number of nodes must be a whole number ≥ 1, found {text!r}; e.g. k80-10gbe:64")
    return int(text)
