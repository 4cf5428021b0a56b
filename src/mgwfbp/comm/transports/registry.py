"""Transports by name: what makes one, and for which arrays. Yours is one decorated function:

@transport("mine")
def mine(comm, xp, elements):
    return MyTransport(comm)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mgwfbp.errors import check_free

# (the communicator that is the transport's own, the array module, the most elements of a message) -> the transport
Maker = Callable[[Any, Any, int], Any]


class Entry(NamedTuple):
    """What makes a transport, and whether it carries arrays on a GPU (CuPy's) or NumPy's."""

    make: Maker
    on_device: bool


TRANSPORTS: dict[str, Entry] = {}


def transport(name: str, *, on_device: bool = False) -> Callable[[Maker], Maker]:
    """Decorator that registers what makes the transport `name`; `--transport name` then finds it.

    Raises UserError if another transport has that name.
    """

    def register(make: Maker) -> Maker:
        known = {"auto": None, **{each: entry.make for each, entry in TRANSPORTS.items()}}
        check_free("transport", name, make, known)
        TRANSPORTS[name] = Entry(make, on_device)
        return make

    return register


def transport_names() -> list[str]:
    """The names that `--transport` takes."""
    return ["auto", *TRANSPORTS]
