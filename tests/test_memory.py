"""Which settings the C library is asked for, and that one that it refuses keeps none of the others from it."""

from __future__ import annotations

import pytest

from mgwfbp.kernels.memory import LARGEST, M_MMAP_THRESHOLD, M_TOP_PAD, M_TRIM_THRESHOLD, ask_to_keep

OPTIONS = {M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD}


@pytest.mark.parametrize(
    ("limit", "threshold"),
    [(2**63, LARGEST), (32 << 20, 32 << 20)],  # glibc 2.35 and later; before, HEAP_MAX_SIZE / 2
)
def test_an_older_library_gets_the_largest_threshold_that_it_takes(limit, threshold):
    taken = {}

    def mallopt(option, value):
        if option == M_MMAP_THRESHOLD and value > limit:
            return False
        taken[option] = value
        return True

    assert ask_to_keep(mallopt)
    assert taken[M_MMAP_THRESHOLD] == threshold
    assert set(taken) == OPTIONS


@pytest.mark.parametrize("refused", OPTIONS)
def test_all_are_asked_whatever_is_refused(refused):
    asked = set()

    def mallopt(option, value):
        asked.add(option)
        return option != refused

    assert not ask_to_keep(mallopt)
    assert asked == OPTIONS
