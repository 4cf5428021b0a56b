"""Keep freed memory: activations have the same sizes in every iteration."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
LARGEST = 2**31 - 1
LARGEST_BEFORE_2_35 = 32 << 20  # of M_MMAP_THRESHOLD: older glibcs refuse what is above it


@cache
def keep_freed_memory() -> bool:
    """Ask the C library not to hand large blocks back to the system; returns whether it could be asked (glibc only).

    By default glibc takes every array of more than 128 kB from the system and returns it when it is freed, so that each
    iteration pays for the zeroing of all its pages anew: 30 % of a ResNet-20 step. After this call they are reused.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return ask_to_keep(lambda option, value: mallopt(option, value) == 1)


def ask_to_keep(accepts: Callable[[int, int], bool]) -> bool:
    """Make all settings that the C library `accepts(option, value)`; returns whether it took one for each option."""
    # The first alone would do for NumPy's arrays; without the other two the top of the heap would still be returned.
    settings = (
        (M_MMAP_THRESHOLD, (LARGEST, LARGEST_BEFORE_2_35)),
        (M_TRIM_THRESHOLD, (LARGEST,)),
        (M_TOP_PAD, (64 << 20,)),
    )
    taken = [any(accepts(option, value) for value in values) for option, values in settings]  # a list: all are asked
    return all(taken)
