"""Which rank, which layer: the origin of a loss or gradient that is NaN or infinite."""

from __future__ import annotations

from math import isfinite

import numpy as np

from mgwfbp.comm import World
from mgwfbp.data import Batch
from mgwfbp.errors import DivergedError
from mgwfbp.net import Net, to_host
from mgwfbp.schedule import PIPELINED
from mgwfbp.train.gradients import all_finite
from mgwfbp.train.loop import Hook
from mgwfbp.train.times import Done


class NonFinite(Hook):
    """Says where a gradient that is not finite comes from, and ends the run, unless such iterations are left out."""

    _before: tuple[Batch, float] | None = None

    def after(self, batch: Batch, done: Done) -> None:
        """Collective where a gradient is not finite, which all ranks know. Raises DivergedError."""
        trainer, now = self.trainer, (batch, done.loss)
        if not done.finite:
            net, exchange = trainer.net, trainer.exchange
            exchange.drain()
            pipelined = exchange.schedule.mode == PIPELINED  # whose sums arrive an iteration later
            bad, loss = self._before if pipelined and self._before else now
            untouched, state = trainer.skip or (not pipelined and net.kernels.xp is np), net.state.copy()
            where = f"iteration {bad.number + 1}: {origin(trainer.world, net, bad, loss, untouched=untouched)}"
            if not trainer.skip:
                raise DivergedError(
                    f"{where}: training has diverged, or its data is bad; try a smaller --lr, or --on-nan skip"
                )
            trainer.say(f"{where}; skipped, nothing was changed")
            net.state[...] = state
        self._before = now


def origin(world: World, net: Net, batch: Batch, loss: float, *, untouched: bool = True) -> str:
    """One line that names the rank and the layer of the first value that is not finite. Collective.

    The sums over the ranks say only that one of them is bad, so each rank repeats its forward and backward pass and
    looks at its own gradients. They are overwritten. If the bad sums have gone into the parameters already (not
    `untouched`), a repetition says nothing, and only a loss can name its rank.
    """
    bad = None
    images, labels = batch.load()
    if untouched and len(labels):
        net.forward(images, labels, batch.step, batch.size)
        net.backward()
        parts = zip(net.arena.names, net.arena.layer_slices, strict=True)
        bad = next((name for name, part in parts if not all_finite(to_host(net.arena.gradients[part]))), None)
    found = world.comm.allgather((loss, bad))
    for rank, (value, layer) in enumerate(found):
        if not isfinite(value):
            return f"the loss of rank {rank} is {value}" + (f", its gradients from layer {layer} on" if layer else "")
    for rank, (_, layer) in enumerate(found):
        if layer:
            return f"the gradient of layer {layer} on rank {rank} is not finite"
    if not untouched:
        return "a sum of gradients is not finite (--schedule optimal on the CPU names the layer)"
    return "the sum of the ranks' gradients is not finite, though each rank's own are"
