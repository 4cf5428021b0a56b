"""bfloat16 on the wire: a float32 without its lower 16 bits, which is half the bytes, and the same range of exponents.

NumPy has no such type and no MPI a usable one, so the bits travel as uint16, and sums are made in float32.
"""

from __future__ import annotations

import numpy as np

BLOCK = 1 << 15  # elements that are rounded at a time: they stay in the cache between the steps


def to_bits(values: np.ndarray, bits: np.ndarray) -> None:
    """`bits` (uint16) become `values` (float32, 1-D, of the same length) rounded to bfloat16, nearest even.

    NaN stays NaN, infinities stay, and what is nearer to the next power than to the largest number becomes infinite.
    """
    words = values.view(np.uint32)
    scratch = np.empty(min(BLOCK, len(values)), np.uint32)
    for start in range(0, len(values), BLOCK):
        block = words[start : start + BLOCK]
        rounded = scratch[: len(block)]
        np.right_shift(block, 16, out=rounded)
        rounded &= 1  # a tie goes to the even neighbour
        rounded += 0x7FFF
        rounded += block
        rounded >>= 16
        # Of some NaNs the carry would make −0 or infinity: they keep their upper bits, and the one that says "quiet".
        nan = np.isnan(values[start : start + BLOCK])
        if nan.any():
            rounded[nan] = (block[nan] >> 16) | 0x40
        bits[start : start + BLOCK] = rounded


def to_values(bits: np.ndarray, values: np.ndarray) -> None:
    """`values` (float32) become the bfloat16 numbers whose `bits` (uint16) are given."""
    np.left_shift(bits, 16, out=values.view(np.uint32), dtype=np.uint32)
