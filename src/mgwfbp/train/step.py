"""One training step: forward, backward with messages behind it, updates as messages end; and when each happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mgwfbp.data import Batch
from mgwfbp.kernels import Kernels
from mgwfbp.net import Net
from mgwfbp.schedule import IterationTimes
from mgwfbp.train.exchange import AllReduced
from mgwfbp.train.times import Done, Taken


def train_step(net: Net, exchange: AllReduced, batch: Batch) -> Done:
    """Train on one global batch; every rank sends every message, also one without a sample in it.

    Without the marks it is a loop of one's own:

        loss, right = net.forward(images, labels, batch.step, batch.size, exchange.before_layer)
        exchange.begin()
        net.backward(exchange.gradient_ready)
        exchange.finish()
    """
    marks, state = Marks(net.kernels), net.state.copy() if exchange.skip else None
    images, labels = batch.load()
    loss, right = net.forward(images, labels, batch.step, batch.size, marks.around(exchange.before_layer))
    marks.forward_end = marks.now()
    exchange.begin()  # the comm thread starts to wait for the first bucket
    net.backward(marks.before(exchange.gradient_ready))  # last layer first; each call is a counter, not a copy
    marks.backward_end = marks.now()
    finite = exchange.finish()  # updates in schedule order, as messages end
    if state is not None and not finite:
        net.state[...] = state  # BatchNorm has seen what is left out
    return marks.done(loss, right, finite, exchange.taken)


class Marks:
    """When things happen in an iteration that begins now: marks of the kernel set, times when it is over."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels, self.now = kernels, kernels.now
        self.waits: list[tuple[Any, Any]] = []
        self.ready: list[Any] = []
        self.start = self.forward_end = self.backward_end = self.now()

    def around(self, wait: Callable[[int], None]) -> Callable[[int], None]:
        """`wait`, noting when each call began and ended."""

        def waited(layer: int) -> None:
            began = self.now()
            wait(layer)
            self.waits.append((began, self.now()))

        return waited

    def before(self, announce: Callable[[int], None]) -> Callable[[int], None]:
        """`announce`, noting when each call was made."""

        def announced(layer: int) -> None:
            self.ready.append(self.now())
            announce(layer)

        return announced

    def done(self, loss: Any, right: Any, finite: bool, taken: list[Taken]) -> Done:
        """What the iteration did, which ends now. It waits for the device, once."""
        edges = [self.start, self.forward_end, self.backward_end, self.now()]
        waits = [mark for pair in self.waits for mark in pair]
        moments = [mark for one in taken for mark in one[1:]]
        times = iter(self.kernels.times([*edges, *waits, *moments, *self.ready]))
        start, forward_end, backward_end, end = (next(times) for _ in edges)
        forward = [(next(times), next(times)) for _ in self.waits]
        messages = [Taken(one.message, next(times), next(times), next(times)) for one in taken]
        update_ns = sum(one.updated - one.arrived for one in messages)
        ready = list(times)
        return Done(
            float(loss),
            int(right),
            finite,
            IterationTimes(start, forward_end, ready, backward_end, end, update_ns, forward),
            messages,
        )
