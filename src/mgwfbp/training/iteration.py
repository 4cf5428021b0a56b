"""One iteration: forward, backward with messages behind it, updates as messages end; and when each of it happened."""

from __future__ import annotations

import time
from math import isfinite
from typing import NamedTuple

from mgwfbp.comm import Comm, Sent
from mgwfbp.data import Share
from mgwfbp.layers import Step
from mgwfbp.measure.profiler import IterationTimes
from mgwfbp.measure.timeline import COMMUNICATION, COMPUTE, Span
from mgwfbp.network import Network
from mgwfbp.schedule import Schedule
from mgwfbp.schedule.predict import overlap
from mgwfbp.training.batches import Batch
from mgwfbp.training.optimizer import SGD

clock = time.perf_counter_ns


class Iteration(NamedTuple):
    """What one iteration did on this rank: its share of the mean loss, right answers, times, messages, updates."""

    loss: float
    correct: int
    times: IterationTimes
    sent: list[Sent]
    updates: list[tuple[int, int]]  # (start, end) in ns, one a bucket
    finite: bool = True  # whether all gradients were; if not, no update was made from the first bad bucket on

    @property
    def seconds(self) -> float:
        """From the start of the batch to the end of the last update."""
        return (self.times.end - self.times.start) * 1e-9

    @property
    def exposed_s(self) -> float:
        """Seconds from the end of backward to the end of the last message."""
        return max(0, max(sent.end_ns for sent in self.sent) - self.times.backward_end) * 1e-9

    @property
    def overlap(self) -> float:
        """The share of the message time before the end of backward."""
        return overlap([(sent.start_ns, sent.end_ns) for sent in self.sent], self.times.backward_end)


def run_iteration(
    network: Network,
    comm: Comm,
    optimizer: SGD,
    schedule: Schedule,
    share: Share,
    batch: Batch,
    step: Step,
    *,
    whole: bool = False,
) -> Iteration:
    """Train on one global batch, of which `share` is this rank's part; `batch(share, step)` gives (images, labels).

    Every rank sends every message, also one whose share is empty: it adds zeros. A bucket is updated when its message
    has ended; with `whole`, or where gradients are clipped, when all have: then all are updated or none.
    """
    ready: list[int] = []

    def announce(layer: int) -> None:
        ready.append(clock())
        comm.gradient_ready(layer)

    start = clock()
    images, labels = batch(share, step)
    comm.begin(schedule)
    if len(labels):
        loss, correct = network.forward(images, labels, step, share.global_batch)
        forward_end = clock()
        network.backward(on_gradient=announce)
    else:
        loss, correct, forward_end = 0.0, 0, clock()
        network.arena.gradients[...] = 0
        for layer in range(len(network.learnable)):
            announce(layer)
    backward_end = clock()
    sent, updates = [], []
    finite, whole = True, whole or optimizer.clip_norm is not None
    for bucket in comm.completed():
        began = clock()
        # The sums are the same on all ranks, so all find the same and go on alike.
        finite = finite and isfinite(float(network.arena.gradients[bucket.slice].sum()))
        if finite and not whole:
            optimizer.update(bucket.slice)
        updates.append((began, clock()))
        sent.append(bucket)
    if finite and whole:
        began = clock()
        optimizer.clip()
        optimizer.update(slice(0, len(network.arena.gradients)))
        updates[-1] = (updates[-1][0], clock()) if len(updates) == 1 else (began, clock())
    update_ns = sum(end - began for began, end in updates)
    times = IterationTimes(start, forward_end, ready, backward_end, clock(), update_ns)
    return Iteration(float(loss), int(correct), times, sent, updates, finite)


def measured_spans(iteration: Iteration, names: list[str], nbytes: list[int], number: int) -> list[Span]:
    """The spans of one measured iteration for the timeline. `names` and `nbytes` are the layers', `number` its own."""
    times = iteration.times
    spans = [Span(COMPUTE, "forward", times.start, times.forward_end, {"iteration": number})]
    edges = [times.forward_end, *times.ready[:-1], times.backward_end]
    for name, begin, end in zip(names, edges[:-1], edges[1:], strict=True):
        spans.append(Span(COMPUTE, f"backward {name}", begin, end, {}))
    end = times.backward_end
    for place, (sent, (began, ended)) in enumerate(zip(iteration.sent, iteration.updates, strict=True)):
        if began > end:
            spans.append(Span(COMPUTE, f"wait for bucket {place}", end, began, {}))
        spans.append(Span(COMPUTE, f"update bucket {place}", began, ended, {}))
        end = ended
        if sent.end_ns > sent.start_ns:
            first, last = sent.bucket.first, sent.bucket.last
            details = {
                "layers": sent.bucket.label(names),
                "nbytes": sum(nbytes[first : last + 1]),
                "waited_s": (sent.start_ns - sent.ready_ns) * 1e-9,
            }
            spans.append(Span(COMMUNICATION, f"bucket {place}", sent.start_ns, sent.end_ns, details))
    return spans
