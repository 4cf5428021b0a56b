"""Ranks of one machine choose their GPUs together."""

from __future__ import annotations

import pytest

from mgwfbp.comm import choose_device
from mgwfbp.errors import SharedError


def test_each_takes_its_own_or_all_are_told_why_not(world):
    assert world.node_gather(world.rank) == list(range(world.size))
    everything = [str(device) for device in range(world.size)]
    assert choose_device(world, everything) == world.local_rank
    assert choose_device(world, [str(world.rank)]) == 0
    with pytest.raises(SharedError, match=f"{world.size} ranks on this machine, but 1 GPU "):
        choose_device(world, ["0"])
    assert choose_device(world, ["0"], share=True) == 0
    with pytest.raises(SharedError, match="local rank 1 sees no GPU"):
        choose_device(world, [] if world.rank == 1 else everything)
