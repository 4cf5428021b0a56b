"""One iteration: forward, backward with messages behind it, updates as messages end; and when each of it happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mgwfbp.comm import Comm, Sent
from mgwfbp.data import Share
from mgwfbp.layers import Step
from mgwfbp.measure.profiler import IterationTimes
from mgwfbp.measure.timeline import COMMUNICATION, COMPUTE, Span
from mgwfbp.network import Network
from mgwfbp.schedule import Schedule
from mgwfbp.schedule.workload import PIPELINED, SHARDED
from mgwfbp.training.batches import Batch
from mgwfbp.training.in_flight import InFlight
from mgwfbp.training.optimizer import SGD

clock = time.perf_counter_ns
Interval = tuple[int, int]  # start and end, in ns of `clock`


class Iteration(NamedTuple):
    """What one iteration did on this rank: its share of the mean loss, right answers, times, messages.

    `sent` are the messages that were taken in it, `waits` when the main thread waited for each, `updates` when it
    updated their parameters. Under schedules that run into forward they belong to the iteration before.
    """

    loss: float
    correct: int
    times: IterationTimes
    sent: list[Sent]
    waits: list[Interval]
    updates: list[Interval]
    finite: bool = True  # whether all gradients were; if not, no update was made from the first bad bucket on

    @property
    def seconds(self) -> float:
        """From the start of the batch to the end of the last update, or of backward."""
        return (self.times.end - self.times.start) * 1e-9

    @property
    def exposed_s(self) -> float:
        """Seconds that the main thread waited for messages."""
        return sum(end - began for began, end in self.waits) * 1e-9

    @property
    def overlap(self) -> float:
        """The share of the message time during which the main thread did not wait."""
        total = sum(end - start for start, end in self._messages)
        return 1.0 - shared(self._messages, self.waits) / total if total else 1.0

    @property
    def behind_forward_s(self) -> float:
        """Seconds of messages that forward hid: it ran, and did not wait."""
        times = self.times
        # A replayed iteration begins with backward.
        forward = (times.start if times.forward_end <= times.backward_end else times.backward_end, times.forward_end)
        inside = [(max(began, forward[0]), min(end, forward[1])) for began, end in self.waits]
        waits = [(began, end) for began, end in inside if end > began]
        return (shared(self._messages, [forward]) - shared(self._messages, waits)) * 1e-9

    @property
    def behind_backward_s(self) -> float:
        """Seconds of messages that backward hid, or the updates after it."""
        total = sum(end - start for start, end in self._messages) * 1e-9
        return total * self.overlap - self.behind_forward_s

    @property
    def _messages(self) -> list[Interval]:
        return [(sent.start_ns, sent.end_ns) for sent in self.sent]


def run_iteration(
    network: Network,
    flight: InFlight,
    schedule: Schedule,
    share: Share,
    batch: Batch,
    step: Step,
    *,
    whole: bool = False,
) -> Iteration:
    """Train on one global batch, of which `share` is this rank's part; `batch(share, step)` gives (images, labels).

    Every rank sends every message, also one whose share is empty: it adds zeros. A bucket is updated when its message
    has ended; with `whole`, or where gradients are clipped, when all have: then all are updated or none. If the
    schedule runs into the next forward, its last messages are left in `flight`, where the next iteration's layers wait
    for them; `flight` has the comm thread and the optimiser, too.
    """
    comm, optimizer, now = flight.comm, flight.optimizer, network.kernels.now
    ready: list[Any] = []  # marks, which become times when the iteration is over
    forward: list[tuple[Any, Any]] = []

    def wait_for(layer: int) -> None:
        began = now()
        flight.before_layer(layer)
        forward.append((began, now()))

    def announce(layer: int) -> None:
        ready.append(now())
        comm.gradient_ready(layer)

    flight.begin_iteration()
    start = now()
    images, labels = batch(share, step)
    if len(labels):
        loss, correct = network.forward(images, labels, step, share.global_batch, wait_for)
    else:
        loss, correct = 0.0, 0
        for layer in reversed(range(len(network.learnable))):
            wait_for(layer)
    forward_end = now()
    comm.begin(schedule)
    if len(labels):
        network.backward(on_gradient=announce)
    else:
        network.arena.gradients[...] = 0
        for layer in range(len(network.learnable)):
            announce(layer)
    backward_end = now()
    done = Updates(flight.sent, flight.waits, flight.updates, flight.finite)
    whole = whole or optimizer.clip_norm is not None
    if schedule.mode != PIPELINED:
        done = _update(comm, optimizer, done, whole, now)
    if schedule.mode == SHARDED:
        comm.updated()
    if schedule.runs_into_forward:
        flight.leave(schedule)
    one, waits, updates, forward_times, ready_times = _times(
        network, [start, forward_end, backward_end, now()], flat(done.waits), flat(done.updates), flat(forward), ready
    )
    finite = optimizer.finite_so_far() and done.finite
    if schedule.runs_into_forward and not whole:
        # Of a sharded schedule each rank knows of its own parts only: `flight.check` asks all, where all come by.
        flight.finite, finite = finite, finite or schedule.mode == SHARDED
    update_ns = sum(updates[1::2]) - sum(updates[::2])
    times = IterationTimes(one[0], one[1], ready_times, one[2], one[3], update_ns, pairs(forward_times))
    # A copy of `sent`: what is taken from `flight` before the next iteration is not this one's.
    return Iteration(float(loss), int(correct), times, [*done.sent], pairs(waits), pairs(updates), finite)


def _times(network: Network, *groups: list[Any]) -> list[list[int]]:
    """The times of each group of marks, in ns; the first mark of all is the oldest. It waits for the device."""
    times = iter(network.kernels.times([mark for group in groups for mark in group]))
    return [[next(times) for _ in group] for group in groups]


def flat(pairs: Sequence[tuple[Any, Any]]) -> list[Any]:
    """[a, b, c, d] of [(a, b), (c, d)]."""
    return [mark for pair in pairs for mark in pair]


def pairs(times: Sequence[int]) -> list[Interval]:
    """[(a, b), (c, d)] of [a, b, c, d]."""
    return list(zip(times[::2], times[1::2], strict=True))


class Updates(NamedTuple):
    """What was taken: messages, the waits for them, the updates, and whether all sums were finite."""

    sent: list[Sent]
    waits: list[tuple[Any, Any]]
    updates: list[tuple[Any, Any]]
    finite: bool


def _update(comm: Comm, optimizer: SGD, before: Updates, whole: bool, now: Callable[[], Any]) -> Updates:
    """Take all buckets of this iteration and update this rank's parts of each, or of all at the end if `whole`."""
    sent, waits, updates, finite = before
    own: list[slice] = []
    coming, left = comm.completed(), now()
    for bucket in coming:
        began = now()
        waits.append((left, began))
        # The sums are the same on all ranks, so all find the same and go on alike; of a sharded bucket each rank sees
        # its own part.
        finite = finite and optimizer.finite(bucket.own)
        own += bucket.own
        if finite and not whole:
            for part in bucket.own:
                optimizer.update(part)
        left = now()
        updates.append((began, left))
        sent.append(bucket)
    if whole:
        finite = optimizer.agree(optimizer.finite_so_far() and finite)
        if finite:
            began = now()
            optimizer.clip(own)
            for part in own:
                optimizer.update(part)
            updates[-1] = (updates[-1][0], now()) if len(updates) == 1 else (began, now())
    return Updates(sent, waits, updates, finite)


def shared(spans: Sequence[Interval], others: Sequence[Interval]) -> int:
    """Nanoseconds that lie in one of `spans` and in one of `others`, each in order and without overlaps of its own."""
    total, place = 0, 0
    for start, end in spans:
        while place < len(others) and others[place][1] <= start:
            place += 1
        for first, last in others[place:]:
            if first >= end:
                break
            total += min(end, last) - max(start, first)
    return total


def measured_spans(iteration: Iteration, names: list[str], nbytes: list[int], number: int) -> list[Span]:
    """The spans of one measured iteration for the timeline. `names` and `nbytes` are the layers', `number` its own."""
    times, forwards = iteration.times, []
    at, layer = times.start, "forward"
    for place, (began, went_on) in zip(reversed(range(len(names))), times.forward, strict=False):
        forwards.append((layer, at, began))
        at, layer = went_on, f"forward {names[place]}"
    forwards.append((layer, at, times.forward_end))
    spans = [Span(COMPUTE, name, begin, end, {}) for name, begin, end in forwards if end > begin]
    spans[0].details["iteration"] = number
    edges = [times.forward_end, *times.ready[:-1], times.backward_end]
    for name, begin, end in zip(names, edges[:-1], edges[1:], strict=True):
        spans.append(Span(COMPUTE, f"backward {name}", begin, end, {}))
    for sent, wait, update in zip(iteration.sent, iteration.waits, iteration.updates, strict=True):
        spans += message_spans(sent, wait, update, names, nbytes)
    return spans


def message_spans(sent: Sent, wait: Interval, update: Interval, names: list[str], nbytes: list[int]) -> list[Span]:
    """A message, the wait for it, and the update after it."""
    spans = [Span(COMPUTE, f"wait for {sent.name}", *wait, {})] if wait[1] > wait[0] else []
    if update[1] > update[0]:
        spans.append(Span(COMPUTE, f"update {sent.name}", *update, {}))
    if sent.end_ns > sent.start_ns:
        first, last = sent.bucket.first, sent.bucket.last
        details = {
            "layers": sent.bucket.label(names),
            "nbytes": sum(nbytes[first : last + 1]),
            "waited_s": (sent.start_ns - sent.ready_ns) * 1e-9,
        }
        spans.append(Span(COMMUNICATION, sent.name, sent.start_ns, sent.end_ns, details))
    return spans
