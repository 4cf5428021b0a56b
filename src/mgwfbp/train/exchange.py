"""How sums of gradients become parameters: three modes, one under the other.

An exchange stands between a net and the comm thread for one schedule. Its four calls are an iteration:

    before_layer(i)      in forward, before layer i reads its parameters: may they be read?
    begin()              forward is over, the messages of this iteration may leave
    gradient_ready(i)    in backward, layer 0 (the last one) first
    finish()             backward is over: take what must be taken before the iteration ends
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mgwfbp.comm import Comm, Message
from mgwfbp.errors import DivergedError, SharedError
from mgwfbp.net import Net
from mgwfbp.optim import Optimizer
from mgwfbp.schedule import NEEDS_ALL_SUMS, PIPELINED, SHARDED, Schedule
from mgwfbp.train.gradients import Gradients
from mgwfbp.train.times import Taken


class AllReduced:
    """Every message ends before the iteration does, and its bucket is updated as soon as it has ended.

    Or all buckets at the end, or none: where gradients are clipped, and with `skip`, which leaves an iteration out in
    which one is not finite. Between iterations `taken` are the messages of the last one.
    """

    parted = False  # whether each rank has the sums of its own parts only
    begun = False
    missing: frozenset[int] = frozenset()  # layers whose bucket was left to the next forward, and not taken there
    first_batch: Callable[[], None] | None = None  # looks at the first one

    def __init__(
        self, schedule: Schedule, comm: Comm, net: Net, optimizer: Optimizer, gradients: Gradients, skip: bool
    ) -> None:
        self.schedule, self.comm, self.net, self.optimizer, self.gradients = schedule, comm, net, optimizer, gradients
        self.skip, self.all_or_none = skip, skip or gradients.clip_norm is not None
        self.finite, self.lr = True, optimizer.lr
        self.taken: list[Taken] = []
        self._taking: list[Taken] = []
        optimizer.keep(comm.own(schedule) if self.parted else None)

    def before_layer(self, layer: int) -> None:
        """Nothing is on its way."""

    def begin(self) -> None:
        """Hand the schedule to the comm thread; RuntimeError if a call is missing. Collective with another schedule."""
        if self.begun or self.missing:
            lacks = "finish() was not called" if self.begun else "forward was not given before_layer"
            raise RuntimeError(f"begin: {lacks}; an iteration is forward with before_layer, begin, backward, finish")
        if self.first_batch is not None:
            self.first_batch()
            self.first_batch = None
        self.optimizer.steps += 1
        self.begun, self.lr = True, self.optimizer.lr  # of this iteration, whenever its updates are made
        self.comm.begin(self.schedule)

    def gradient_ready(self, layer: int) -> None:
        """The gradients of `layer` (gradient-ready order) are written."""
        self.comm.gradient_ready(layer)

    def finish(self) -> bool:
        """Take all messages and update their buckets. Whether all gradients were finite, the same on all ranks."""
        own: list[slice] = []
        coming = self.comm.completed()
        while message := self.take(coming, self.update):
            own += message.own
        return self.over(self.update_all(own) if self.all_or_none else self.so_far())

    def update(self, message: Message) -> None:
        """Update this rank's parts of a bucket whose sums have arrived, if they and all before them are finite."""
        # The sums are the same on all ranks, so all find the same and go on alike.
        self.finite = self.finite and self.gradients.finite(message.own)
        if self.finite and not self.all_or_none:
            self.optimizer.update(message.own, self.lr)

    def update_all(self, own: list[slice]) -> bool:
        """Clip and update all of this rank's parts, or leave them as they are; says which."""
        good = self.gradients.agree(self.so_far(), parted=self.parted)
        if good:
            self.gradients.clip(own, parted=self.parted)
            self.optimizer.update(own, self.lr)
        self._taking[-1] = self._taking[-1]._replace(updated=self.net.kernels.now())
        return good

    def so_far(self) -> bool:
        """Whether all sums since it was asked last are finite, as far as this rank knows them."""
        finite, self.finite = self.gradients.finite_so_far() and self.finite, True
        return finite

    def take(self, coming: Iterator[Message], use: Callable[[Message], None]) -> Message | None:
        """The next message, when it has ended and `use` has had it; None if there is no other."""
        asked = self.net.kernels.now()
        message = next(coming, None)
        if message is not None:
            arrived = self.net.kernels.now()
            use(message)
            self._taking.append(Taken(message, asked, arrived, self.net.kernels.now()))
        return message

    def over(self, finite: bool) -> bool:
        """The iteration is over; returns `finite`."""
        self.taken, self._taking, self.begun = self._taking, [], False
        return finite

    def drain(self) -> None:
        """Return when nothing is on its way."""

    def check(self, iteration: int) -> None:
        """Raise DivergedError, on all ranks, if a sum since the last check was not finite. Collective if `parted`."""
        if not self.gradients.agree(self.finite and self.gradients.finite_so_far(), parted=self.parted):
            raise DivergedError(
                f"iteration {iteration}, or one since the last line of the log: a sum of gradients is not finite: "
                "training has diverged, or its data is bad; try a smaller --lr; --schedule optimal names the layer"
            )


class IntoForward(AllReduced):
    """Messages may still be on their way when the next forward begins: each of its layers waits for its own bucket."""

    coming: Iterator[Message] = iter(())

    def leave(self, coming: Iterator[Message]) -> None:
        """Leave what comes to the next forward."""
        self.coming, self.missing = coming, frozenset(range(len(self.net.learnable)))

    def arrived(self, message: Message) -> None:
        """What is done with a message that was left."""
        raise NotImplementedError

    def before_layer(self, layer: int) -> None:
        """Return when the bucket of `layer` was taken. Buckets arrive in one order, so all before it are, too."""
        while layer in self.missing:
            message = self.take(self.coming, self.arrived)
            bucket = message.bucket if message else None  # one rank: nothing is gathered
            self.missing -= frozenset(range(bucket.first, bucket.last + 1)) if bucket else self.missing

    def drain(self) -> None:
        """Take all that was left; it belongs to no iteration."""
        for layer in sorted(self.missing):
            self.before_layer(layer)
        self._taking.clear()


class Pipelined(IntoForward):
    """Sums arrive in the next forward, and are updated there, with the learning rate of their own iteration."""

    def finish(self) -> bool:
        """Leave all messages. Whether those of the iteration before, taken in this one's forward, were finite."""
        self.leave(self.comm.completed())
        return self.over(self.so_far())

    def arrived(self, message: Message) -> None:
        """Update the bucket."""
        self.update(message)


class Sharded(IntoForward):
    """Each rank updates its own parts now; everyone's parameters arrive in the next forward."""

    parted = True

    def finish(self) -> bool:
        """Take the reduce-scatters, update this rank's parts, leave the all-gathers."""
        finite = super().finish()
        self.comm.updated()
        self.leave(self.comm.gathered())
        return finite

    def so_far(self) -> bool:
        """Each rank knows of its own parts only: yes, until `check` or `update_all` asks all of them."""
        finite = self.gradients.finite_so_far() and self.finite
        self.finite = finite or self.all_or_none
        return finite or not self.all_or_none

    def arrived(self, message: Message) -> None:
        """The parameters are there."""


MODES: dict[str, type[AllReduced]] = {PIPELINED: Pipelined, SHARDED: Sharded}


def make_exchange(
    schedule: Schedule, comm: Comm, net: Net, optimizer: Optimizer, gradients: Gradients, skip: bool = False
) -> AllReduced:
    """The exchange for the mode of `schedule`. Collective where the one before was sharded; drain that one first.

    Raises SharedError for a pipelined one with clipping or `skip`, which need all sums before any update.
    """
    if schedule.mode == PIPELINED and (skip or gradients.clip_norm is not None):
        raise SharedError(f"schedule {schedule.policy}: {NEEDS_ALL_SUMS}")
    return MODES.get(schedule.mode, AllReduced)(schedule, comm, net, optimizer, gradients, skip)
