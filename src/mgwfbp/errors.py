"""The exceptions that mean "the user can mend this". Every room may import this file; it imports nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


class UserError(ValueError):
    """A mistake of the user's: one line that says what was wrong, where, and what to do. The CLI exits with 2."""


class SharedError(UserError):
    """A user's mistake that every rank knows of and raises alike: rank 0 prints it, and all leave by themselves."""


class StoppedError(SharedError):
    """Every rank stops because it was told to, with all work saved; `code` is the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class DivergedError(SharedError):
    """A loss or a gradient is not finite: training has diverged, on all ranks."""

    code = 3


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not in a registry, with the nearest one that is.

    `kind` is a noun for the message ("model", "policy"). Returns the error, for the caller to raise.
    """
    names = sorted(known)
    # 0.5 is lenient on purpose: a wrong suggestion costs nothing, the list of all names follows it.
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UserError(f"unknown {kind} {name!r}: {hint}known are {', '.join(names)}")


def check_free(decorator: str, name: str, thing: object, known: Mapping[str, object]) -> None:
    """Raise UserError if `name` stands for another thing than `thing` in the registry `known` of `@decorator`.

    What is made again, by a notebook's cell or a file that runs twice, may take its own place: it is known by its
    module and its name there.
    """
    if name in known and (not _place(thing) or _place(thing) != _place(known[name])):
        owner = f" by {_place(known[name])}" if _place(known[name]) else ""
        raise UserError(
            f'@{decorator}("{name}"): that name is taken{owner}; choose another, as in @{decorator}("my-{name}")'
        )


def _place(thing: object) -> str:
    """The module and the name of a function or class; nothing for what has none."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    return f"{module}.{name}" if module and name else ""
