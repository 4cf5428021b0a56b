"""What a schedule will do: the timeline of one iteration on one channel (MG-WFBP, section III)."""

from __future__ import annotations

from typing import NamedTuple

from mgwfbp.schedule.cost import Cost
from mgwfbp.schedule.workload import Bucket, Schedule, Workload


class Message(NamedTuple):
    """One bucket on its way, in seconds from the start of backward: ready to go, sent, received by all."""

    bucket: Bucket
    nbytes: int
    ready_s: float
    start_s: float
    end_s: float


class Prediction(NamedTuple):
    """One iteration under a schedule; seconds.

    `iteration_s` runs from the start of forward to the end of the last message (or of backward, if that is later);
    `comm_end_s` is the end of the last message from the start of backward; `exposed_s` is how long the iteration waits
    for messages after backward ended; `overlap` the share of the communication time hidden behind backward.
    """

    messages: tuple[Message, ...]
    iteration_s: float
    comm_end_s: float
    exposed_s: float
    overlap: float


def predict(workload: Workload, schedule: Schedule, cost: Cost) -> Prediction:
    """The timeline of one iteration: τc(bucket) = max(end of the bucket before, ready time of its last layer)."""
    ready, prefix = workload.ready_s(), workload.prefix_nbytes()
    messages: list[Message] = []
    channel_free = 0.0
    for bucket in schedule.buckets:
        nbytes = prefix[bucket.last + 1] - prefix[bucket.first]
        start = max(channel_free, ready[bucket.last])
        channel_free = start + float(cost(float(nbytes)))
        messages.append(Message(bucket, nbytes, ready[bucket.last], start, channel_free))
    backward = ready[-1]
    spans = [(message.start_s, message.end_s) for message in messages]
    return Prediction(
        tuple(messages),
        iteration_s=workload.forward_s + max(channel_free, backward),
        comm_end_s=channel_free,
        exposed_s=max(0.0, channel_free - backward),
        overlap=overlap(spans, backward),
    )


def overlap(spans: list[tuple[float, float]], backward_end: float) -> float:
    """The share of the message time in `spans` (start, end) before `backward_end`; 1 if there is none to hide."""
    total = sum(end - start for start, end in spans)
    after = sum(max(0.0, end - max(start, backward_end)) for start, end in spans)
    return 1.0 - after / total if total > 0 else 1.0
