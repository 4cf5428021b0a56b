"""Stochastic gradient descent on slices of the arena."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgwfbp.arena import Arena, to_host
from mgwfbp.comm import World
from mgwfbp.kernels import Kernels


class SGD:
    """Caffe's solver: v ← momentum·v + lr·(g + weight_decay·w); w ← w − v, or Nesterov's step.

    g is the gradient of the mean loss over the global batch, which the slice holds once its message has ended. `lr`
    may be changed between updates. `velocity` is a flat array like the arena's; after `keep` only its kept parts, one
    behind the other; for that `world` is needed.
    """

    def __init__(
        self,
        arena: Arena,
        kernels: Kernels,
        *,
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        clip_norm: float | None = None,
        world: World | None = None,
    ) -> None:
        self.arena, self.kernels = arena, kernels
        self.lr, self.momentum, self.weight_decay, self.nesterov = lr, momentum, weight_decay, nesterov
        self.clip_norm, self.world = clip_norm, world
        self.velocity = kernels.xp.zeros_like(arena.parameters)
        self._unread: list[Any] = []  # sums on a GPU that nobody has waited for
        self.kept: dict[int, tuple[int, slice]] | None = None  # start of a kept part → (its place in velocity, it)

    def keep(self, parts: Sequence[slice] | None) -> None:
        """Keep momentum for `parts` of the arena only, the rank's own, or for all of it (None) from here on.

        Collective where parts were kept before: the ranks then put theirs together first.
        """
        velocity = self.kernels.xp.asarray(self.whole_velocity())
        if parts is None:
            self.velocity, self.kept = velocity, None
            return
        self.velocity, self.kept, end = self.kernels.xp.concatenate([velocity[part] for part in parts]), {}, 0
        for part in parts:
            if part.stop > part.start:
                self.kept[part.start] = end, part
                end += part.stop - part.start

    def whole_velocity(self) -> np.ndarray:
        """The momentum of all parameters, on the host. Collective where ranks keep their own parts."""
        velocity = to_host(self.velocity)
        if self.kept is None or self.world is None:
            return velocity
        whole = np.zeros(len(self.arena.parameters), velocity.dtype)
        for start, part in self.kept.values():
            whole[part] = velocity[start : start + part.stop - part.start]
        self.world.add(whole)  # each element is one rank's and 0 elsewhere, so the sum is exact
        return whole

    def finite(self, parts: Sequence[slice]) -> bool:
        """Whether the gradients in `parts` are finite. On a GPU that is yes, until `finite_so_far` asks for all."""
        sums = [self.arena.gradients[part].sum() for part in parts]
        if self.kernels.xp is np:
            return all(math.isfinite(total) for total in sums)
        self._unread += sums
        return True

    def finite_so_far(self) -> bool:
        """Whether all that `finite` was asked for is. Waits for the device once."""
        unread, self._unread = self._unread, []
        xp = self.kernels.xp
        return not unread or bool(xp.isfinite(xp.stack(unread)).all())

    def agree(self, finite: bool) -> bool:
        """Whether all gradients are finite on all ranks. Collective where ranks keep their own parts."""
        if self.kept is None or self.world is None:
            return finite
        return self.world.sum([float(not finite)]) == [0.0]

    def clip(self, own: Sequence[slice]) -> None:
        """Scale all gradients so that their global L2 norm is at most `clip_norm` (Pascanu et al. 2013).

        `own` are this rank's parts. The norm is summed in float64, layer by layer where every rank has all, so that no
        schedule changes it. Collective where ranks keep their own parts.
        """
        if self.clip_norm is None:
            return
        parts = self.arena.layer_slices if self.kept is None else own
        squares = float(sum((self.arena.gradients[part].astype(float) ** 2).sum() for part in parts))
        if self.kept is not None and self.world is not None:
            (squares,) = self.world.sum([squares])
        norm = math.sqrt(squares)
        if norm > self.clip_norm:
            for part in own:
                self.arena.gradients[part] *= self.clip_norm / norm

    def update(self, part: slice) -> None:
        """Update the parameters in `part` of the flat array: a bucket's slice, or one of this rank's parts."""
        place = part
        if self.kept is not None and part.stop > part.start:
            start, kept = self.kept[part.start]
            place = slice(start, start + kept.stop - kept.start)
        w, g, v = self.arena.parameters[part], self.arena.gradients[part], self.velocity[place]
        self.kernels.sgd_update(w, g, v, self.lr, self.momentum, self.weight_decay, self.nesterov)
