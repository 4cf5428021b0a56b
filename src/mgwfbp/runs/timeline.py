"""The run as a Chrome trace (chrome://tracing, ui.perfetto.dev): measured beside planned, every rank a process."""

from __future__ import annotations

from typing import Any, NamedTuple

from mgwfbp.schedule import Interval, Prediction, Workload
from mgwfbp.train.times import Done, Taken

COMPUTE, COMMUNICATION, PLANNED_COMPUTE, PLANNED_COMMUNICATION = range(4)
THREADS = {
    COMPUTE: "compute",
    COMMUNICATION: "communication",
    PLANNED_COMPUTE: "planned compute",
    PLANNED_COMMUNICATION: "planned communication",
}


class Span(NamedTuple):
    """Something that took time on one of the `THREADS`; start and end in ns of `time.perf_counter_ns()`.

    What is planned for one iteration has one number, `plan`, which is larger for later ones.
    """

    thread: int
    name: str
    start_ns: int
    end_ns: int
    details: dict[str, Any]
    plan: int = 0


def planned_spans(
    workload: Workload, prediction: Prediction, start_ns: int, end_ns: int, *, from_backward: bool = False
) -> list[Span]:
    """What `prediction` says of an iteration measured from `start_ns` to `end_ns`: all of it, with every bucket once.

    It starts with forward, or else with backward and ends with the next forward. It begins when the iteration did and
    has its own length: where that is more than was measured, or where messages run into the next forward, it ends after
    the next one began. Its first span says how long the whole was planned to be, and was.
    """
    begins = 0.0 if from_backward else prediction.next_begins_s
    backward = 0.0 if from_backward else prediction.iteration_s - begins
    spans = [
        (f"forward {layer.name}", COMPUTE, start - begins, end - begins)
        for layer, (start, end) in zip(reversed(workload.layers), reversed(prediction.forward), strict=True)
    ]
    end = backward
    for layer in workload.layers:
        spans.append((f"backward {layer.name}", COMPUTE, end, end + layer.backward_s))
        end += layer.backward_s
    buckets = [message.bucket for message in prediction.messages]
    for message in prediction.messages:
        name = f"{'gather' if message.kind == 'all-gather' else 'bucket'} {buckets.index(message.bucket)}"
        spans.append((name, COMMUNICATION, message.start_s + backward, message.end_s + backward))
    result = []
    for name, thread, begin, stop in spans:
        first, last = start_ns + round(begin * 1e9), start_ns + round(stop * 1e9)
        if first < last:
            details = {"planned_s": stop - begin}
            result.append(Span(thread + PLANNED_COMPUTE, name, first, last, details, start_ns))
    if result:
        measured_s = (end_ns - start_ns) * 1e-9
        result[0].details.update(planned_iteration_s=prediction.iteration_s, measured_iteration_s=measured_s)
    return result


def chrome_trace(spans_of_rank: list[list[Span]], zero_ns: list[int]) -> dict[str, Any]:
    """The trace as a JSON object: pid is the rank, tid one of `THREADS`, time 0 the start of the run on each rank.

    Plans that overlap have rows of their own, which come after. `zero_ns[rank]` is that rank's clock when all ranks
    left one barrier. Times are whole microseconds, rounded down, so that spans which do not overlap in the clock do not
    overlap in the file.
    """
    events: list[dict[str, Any]] = []
    for rank, spans in enumerate(spans_of_rank):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        rows = _rows(spans)
        names = dict(THREADS)
        for row in range(1, 1 + max(rows.values(), default=0)):
            for thread in (PLANNED_COMPUTE, PLANNED_COMMUNICATION):
                names[thread + 2 * row] = f"{THREADS[thread]} {row + 1}"
        for thread, name in names.items():
            events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": thread, "args": {"name": name}})
        for span in spans:
            start, end = ((time - zero_ns[rank]) // 1000 for time in (span.start_ns, span.end_ns))
            thread = span.thread + 2 * rows.get(span.plan, 0)
            event = {"ph": "X", "name": span.name, "pid": rank, "tid": thread, "ts": start, "dur": end - start}
            events.append({**event, "args": span.details} if span.details else event)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _rows(spans: list[Span]) -> dict[int, int]:
    """For each plan its place below the measured spans: the first where all plans before it have ended."""
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for span in spans:
        if span.thread in (PLANNED_COMPUTE, PLANNED_COMMUNICATION):
            begins[span.plan] = min(span.start_ns, begins.get(span.plan, span.start_ns))
            ends[span.plan] = max(span.end_ns, ends.get(span.plan, span.end_ns))
    rows: dict[int, int] = {}
    taken_until: list[int] = []
    for plan in sorted(begins):
        rows[plan] = next((row for row, end in enumerate(taken_until) if end <= begins[plan]), len(taken_until))
        taken_until[rows[plan] : rows[plan] + 1] = [ends[plan]]
    return rows


def measured_spans(done: Done, names: list[str], nbytes: list[int], number: int) -> list[Span]:
    """The spans of one measured iteration for the timeline. `names` and `nbytes` are the layers', `number` its own."""
    times, forwards = done.times, []
    at, layer = times.start, "forward"
    for place, (began, went_on) in zip(reversed(range(len(names))), times.forward, strict=False):
        forwards.append((layer, at, began))
        at, layer = went_on, f"forward {names[place]}"
    forwards.append((layer, at, times.forward_end))
    spans = [Span(COMPUTE, name, begin, end, {}) for name, begin, end in forwards if end > begin]
    for span in spans[:1]:  # there is none if the clock did not move: an empty batch on a GPU
        span.details["iteration"] = number
    edges = [times.forward_end, *times.ready[:-1], times.backward_end]
    for name, begin, end in zip(names, edges[:-1], edges[1:], strict=True):
        spans.append(Span(COMPUTE, f"backward {name}", begin, end, {}))
    for taken in done.taken:
        spans += message_spans(taken, names, nbytes)
    return spans


def message_spans(taken: Taken, names: list[str], nbytes: list[int]) -> list[Span]:
    """A message, the wait for it, and the update after it."""
    message = taken.message
    wait: Interval = (taken.asked, taken.arrived)
    update: Interval = (taken.arrived, taken.updated)
    spans = [Span(COMPUTE, f"wait for {message.name}", *wait, {})] if wait[1] > wait[0] else []
    if update[1] > update[0]:
        spans.append(Span(COMPUTE, f"update {message.name}", *update, {}))
    if message.end_ns > message.start_ns:
        first, last = message.bucket.first, message.bucket.last
        details = {
            "layers": message.bucket.label(names),
            "nbytes": sum(nbytes[first : last + 1]),
            "waited_s": (message.start_ns - message.ready_ns) * 1e-9,
        }
        spans.append(Span(COMMUNICATION, message.name, message.start_ns, message.end_ns, details))
    return spans
