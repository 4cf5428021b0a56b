"""What a schedule will do: the timeline of one iteration on one channel (MG-WFBP, section III)."""

from __future__ import annotations

from typing import NamedTuple

from mgwfbp.schedule.cost import Cost, halves
from mgwfbp.schedule.schedule import SHARDED, Bucket, Schedule
from mgwfbp.schedule.workload import Workload

Span = tuple[float, float]


class PlannedMessage(NamedTuple):
    """One bucket on its way, in seconds from the start of backward: ready to go, sent, received by all.

    `kind` is "all-reduce", "reduce-scatter" or "all-gather".
    """

    bucket: Bucket
    nbytes: int
    ready_s: float
    start_s: float
    end_s: float
    kind: str = "all-reduce"


class Prediction(NamedTuple):
    """One iteration under a schedule in the steady state; seconds.

    `iteration_s` is the time from the start of one backward to the start of the next: backward, what is waited for, and
    forward. `comm_end_s` is the end of the last message from the start of backward; `exposed_s` how long the iteration
    waits for messages; `overlap` the share of the communication time during which nothing waited. `behind_backward_s`
    and `behind_forward_s` are the seconds of communication that backward and the next forward hide. `next_begins_s` is
    when the next iteration begins and `forward` holds for each layer the start and end of its forward there, both from
    the start of backward.
    """

    messages: tuple[PlannedMessage, ...]
    iteration_s: float
    comm_end_s: float
    exposed_s: float
    overlap: float
    behind_backward_s: float
    behind_forward_s: float
    next_begins_s: float
    forward: tuple[Span, ...]


def predict(workload: Workload, schedule: Schedule, cost: Cost) -> Prediction:
    """The timeline of one iteration: each message starts when the channel is free and its last layer is ready.

    Of a sharded schedule the buckets are reduce-scattered in their order, then all-gathered in the opposite one. A
    layer's next forward starts when the layer before it is done and its own bucket has arrived; of a schedule that does
    not run into forward, the next iteration begins when all buckets have.
    """
    ready, prefix = workload.ready_s(), workload.prefix_nbytes()
    reduce, gather = halves(cost) if schedule.mode == SHARDED else (cost, cost)
    kind = "reduce-scatter" if schedule.mode == SHARDED else "all-reduce"
    messages: list[PlannedMessage] = []
    free = 0.0
    for bucket in schedule.buckets:
        nbytes = prefix[bucket.last + 1] - prefix[bucket.first]
        start = max(free, ready[bucket.last])
        free = start + float(reduce(float(nbytes)))
        messages.append(PlannedMessage(bucket, nbytes, ready[bucket.last], start, free, kind))
    if schedule.mode == SHARDED:
        reduced = free = max(free, ready[-1])
        for message in reversed(messages.copy()):
            start, free = free, free + float(gather(float(message.nbytes)))
            messages.append(PlannedMessage(message.bucket, message.nbytes, reduced, start, free, "all-gather"))
    arrival = [0.0] * len(ready)
    for message in messages if schedule.runs_into_forward else []:  # an all-gather comes after its reduce-scatter
        for layer in range(message.bucket.first, message.bucket.last + 1):
            arrival[layer] = message.end_s
    forward, waits = _next_forward(workload, 0.0 if schedule.runs_into_forward else free, arrival)
    spans = [(message.start_s, message.end_s) for message in messages]
    total, waited = _length(spans), _shared(spans, waits)
    behind_backward = _shared(spans, [(0.0, ready[-1])])
    return Prediction(
        tuple(messages),
        iteration_s=forward[0][1],
        comm_end_s=free,
        exposed_s=_length(waits),
        overlap=1.0 - waited / total if total > 0 else 1.0,
        behind_backward_s=behind_backward,
        behind_forward_s=max(0.0, total - waited - behind_backward),
        next_begins_s=ready[-1] if schedule.runs_into_forward else max(ready[-1], free),
        forward=tuple(forward),
    )


def _next_forward(workload: Workload, after: float, arrival: list[float]) -> tuple[list[Span], list[Span]]:
    """(start and end of each layer's next forward, the waits between), from the start of backward.

    The next iteration begins at `after` or when backward ends, layer i no sooner than `arrival[i]`.
    """
    left, backward = workload.forward_left_s(), workload.backward_s
    waits = [(backward, after)] if after > backward else []
    clock = max(backward, after) + workload.forward_s - left[-1]  # what comes before the first layer that learns
    forward: list[Span] = [(0.0, 0.0)] * len(left)
    for layer in reversed(range(len(left))):
        if arrival[layer] > clock:
            waits.append((clock, arrival[layer]))
            clock = arrival[layer]
        start, clock = clock, clock + left[layer] - (left[layer - 1] if layer else 0.0)
        forward[layer] = (start, clock)
    return forward, waits


def _length(spans: list[Span]) -> float:
    return sum(end - start for start, end in spans)


def _shared(spans: list[Span], others: list[Span]) -> float:
    """Seconds that lie in one of `spans` and in one of `others` (each without overlaps of its own)."""
    return sum(max(0.0, min(end, last) - max(start, first)) for start, end in spans for first, last in others)
