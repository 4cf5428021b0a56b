"""bfloat16 as torch has it: to nearest even, infinities and NaN kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mgwfbp.comm.sums.bf16 import BLOCK, to_bits, to_values

ODD = [0x7FFFFFFF, 0x7F800001, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x80000000, 0, 1, 0x80000001, 0x7F7FFFFF, 0x3F808000]


def both(words):
    """(ours, torch's) bits of float32 words."""
    values = np.asarray(words, np.uint32).view(np.float32)
    ours = np.empty(len(values), np.uint16)
    to_bits(values, ours)
    theirs = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    return values, ours, theirs


@given(arrays.arrays(np.uint32, st.integers(1, 50), elements=st.integers(0, 2**32 - 1) | st.sampled_from(ODD)))
def test_every_number_is_rounded_as_torch_does_it(words):
    values, ours, theirs = both(words)
    numbers = ~np.isnan(values)
    assert np.array_equal(ours[numbers], theirs[numbers])
    back = np.empty(len(ours), np.float32)
    to_values(ours, back)
    assert np.isnan(back[~numbers]).all()
    assert np.array_equal(back[numbers], torch.from_numpy(values).to(torch.bfloat16).float().numpy()[numbers])


@pytest.mark.parametrize("length", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_any_length(length):
    words = np.random.default_rng(length).integers(0, 2**32, length, np.uint32)
    words[-1:] = 0x7FFFFFFF
    values, ours, theirs = both(words)
    numbers = ~np.isnan(values)
    assert np.array_equal(ours[numbers], theirs[numbers])
    assert (ours[~numbers] & 0x7FFF > 0x7F80).all()
