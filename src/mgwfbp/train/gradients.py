"""What is asked of gradients before they become an update: whether they are finite, and how long they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgwfbp.comm import World
from mgwfbp.kernels import Kernels
from mgwfbp.net import Arena


def all_finite(array: np.ndarray) -> bool:
    """Whether all elements of a float array are finite. A sum says it, unless large finite ones add up to infinity."""
    return math.isfinite(array.sum()) or bool(np.isfinite(array).all())


class Gradients:
    """The sums of the ranks' gradients in `arena`; `clip_norm` is the longest that they may be (None: any length).

    `parted` where it is asked for says that each rank has the sums of its own parts only, as under a sharded schedule.
    """

    def __init__(self, arena: Arena, kernels: Kernels, world: World, clip_norm: float | None = None) -> None:
        self.arena, self.kernels, self.world, self.clip_norm = arena, kernels, world, clip_norm
        self._unread: list[Any] = []  # sums on a GPU that nobody has waited for

    def finite(self, parts: Sequence[slice]) -> bool:
        """Whether the gradients in `parts` are finite. On a GPU that is yes, until `finite_so_far` asks for all."""
        if self.kernels.xp is np:
            return all(all_finite(self.arena.gradients[part]) for part in parts)
        self._unread += [self.arena.gradients[part].sum(dtype=np.float64) for part in parts]
        return True

    def finite_so_far(self) -> bool:
        """Whether all that `finite` was asked for is. Waits for the device once."""
        unread, self._unread = self._unread, []
        xp = self.kernels.xp
        return not unread or bool(xp.isfinite(xp.stack(unread)).all())

    def agree(self, finite: bool, *, parted: bool) -> bool:
        """Whether all gradients are finite on all ranks. Collective where they are parted."""
        return self.world.sum([float(not finite)]) == [0.0] if parted else finite

    def clip(self, own: Sequence[slice], *, parted: bool) -> None:
        """Scale all gradients so that their global L2 norm is at most `clip_norm` (Pascanu et al. 2013).

        `own` are this rank's parts. The norm is summed in float64, layer by layer where every rank has all, so that no
        schedule changes it. Collective where they are parted.
        """
        if self.clip_norm is None:
            return
        parts = own if parted else self.arena.layer_slices
        squares = float(sum((self.arena.gradients[part].astype(float) ** 2).sum() for part in parts))
        if parted:
            (squares,) = self.world.sum([squares])
        norm = math.sqrt(squares)
        if norm > self.clip_norm:
            for part in own:
                self.arena.gradients[part] *= self.clip_norm / norm
