"""What an iteration did: its loss, its messages, and how much of them it hid; and what many of them did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mgwfbp.comm import Message
from mgwfbp.schedule import Interval, IterationTimes, shared_ns


class Taken(NamedTuple):
    """A message that the main thread took: when it asked for it, had it, and had updated its parameters.

    The three are marks of the kernel set's `now`, or times in ns once they are known.
    """

    message: Message
    asked: Any
    arrived: Any
    updated: Any


class Done(NamedTuple):
    """What one iteration did on this rank: its share of the mean loss, right answers, times, messages.

    `finite` says whether all gradients were, on all ranks; if not, no update was made from the first bad bucket on.
    `taken` are the messages taken in it; under schedules that run into forward they are those of the iteration before.
    """

    loss: float
    right: int
    finite: bool
    times: IterationTimes
    taken: Sequence[Taken] = ()

    @property
    def seconds(self) -> float:
        """From the start of the batch to the end of the last update, or of backward."""
        return (self.times.end - self.times.start) * 1e-9

    @property
    def exposed_s(self) -> float:
        """Seconds that the main thread waited for messages."""
        return sum(end - began for began, end in self._waits) * 1e-9

    @property
    def overlap(self) -> float:
        """The share of the message time during which the main thread did not wait."""
        total = sum(end - start for start, end in self._messages)
        return 1.0 - shared_ns(self._messages, self._waits) / total if total else 1.0

    @property
    def behind_forward_s(self) -> float:
        """Seconds of messages that forward hid: it ran, and did not wait."""
        times = self.times
        # A replayed iteration begins with backward.
        forward = (times.start if times.forward_end <= times.backward_end else times.backward_end, times.forward_end)
        inside = [(max(began, forward[0]), min(end, forward[1])) for began, end in self._waits]
        waits = [(began, end) for began, end in inside if end > began]
        return (shared_ns(self._messages, [forward]) - shared_ns(self._messages, waits)) * 1e-9

    @property
    def behind_backward_s(self) -> float:
        """Seconds of messages that backward hid, or the updates after it."""
        total = sum(end - start for start, end in self._messages) * 1e-9
        return total * self.overlap - self.behind_forward_s

    @property
    def figures(self) -> tuple[float, ...]:
        """What a run's summary needs of it: seconds, exposed, share not hidden, behind backward, behind forward."""
        return (self.seconds, self.exposed_s, 1 - self.overlap, self.behind_backward_s, self.behind_forward_s)

    @property
    def _messages(self) -> list[Interval]:
        return [(one.message.start_ns, one.message.end_ns) for one in self.taken]

    @property
    def _waits(self) -> list[Interval]:
        return [(one.asked, one.arrived) for one in self.taken]
