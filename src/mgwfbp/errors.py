"""The exceptions that mean "the user can mend this". Every room may import this file; it imports nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake of the user's: one line that says what was wrong, where, and what to do. The CLI exits with 2."""


class SharedError(UserError):
    """A user's mistake that every rank knows of and raises alike: rank 0 prints it, and all leave by themselves."""


class StoppedError(SharedError):
    """Every rank stops because it was told to, with all work saved; `code` is the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not in a registry, with the nearest one that is.

    `kind` is a noun for the message ("model", "policy"). Returns the error, for the caller to raise.
    """
    names = sorted(known)
    # 0.5 is lenient on purpose: a wrong suggestion costs nothing, the list of all names follows it.
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UserError(f"unknown {kind} {name!r}: {hint}known are {', '.join(names)}")
