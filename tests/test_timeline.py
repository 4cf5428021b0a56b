"""The profiler and the Chrome trace, from times made up here."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

from mgwfbp.net import Arena, LayerSpec
from mgwfbp.runs.timeline import COMMUNICATION, COMPUTE, Span, chrome_trace, planned_spans
from mgwfbp.schedule import (
    ALL_REDUCE,
    PIPELINED,
    SHARDED,
    AffineCost,
    IterationTimes,
    LayerProfile,
    Workload,
    predict,
    schedule_from_cuts,
    workload_from_times,
)

ARENA = Arena([LayerSpec("fc", [("w", (3, 5)), ("b", (5,))]), LayerSpec("conv", [("w", (70,))])])


def iteration(start, forward, first, second, tail=0):
    """Times in ns of an iteration with two layers; `tail` is what backward does after the last announcement."""
    a = start + forward
    return IterationTimes(start, a, [a + first, a + first + second], a + first + second + tail, a + 10**9, 5)


def test_medians_over_iterations_then_the_slowest_rank():
    times = [iteration(0, 100, 10, 40), iteration(1000, 120, 12, 9000), iteration(5000, 110, 14, 44)]
    work = workload_from_times("net", 8, ARENA.layers, times, lambda values: [2 * value for value in values], "here")
    assert work.forward_s == pytest.approx(220e-9)  # medians: forward 110, ready after 12 and 58
    assert [layer.backward_s for layer in work.layers] == pytest.approx([24e-9, 92e-9])
    assert [(layer.name, layer.parameters, layer.nbytes) for layer in work.layers] == [
        ("fc", 20, 512),
        ("conv", 70, 512),
    ]
    assert (work.name, work.batch_size, work.source) == ("net", 8, "here")


def test_the_slowest_rank_is_that_of_the_ready_times_not_of_each_layer():
    def other_rank(values):  # this one is slow in the first layer, the other in the second: both are ready after 50
        return [max(pair) for pair in zip(values, [100e-9, 10e-9, 50e-9], strict=True)]

    work = workload_from_times("net", 8, ARENA.layers, [iteration(0, 100, 40, 10)], other_rank)
    assert [layer.backward_s for layer in work.layers] == pytest.approx([40e-9, 10e-9])


def test_the_last_layer_takes_what_backward_does_after_it():
    work = workload_from_times("net", 8, ARENA.layers, [iteration(0, 100, 10, 40, tail=7)])
    assert work.layers[1].backward_s == pytest.approx(47e-9)


def test_a_plan_longer_than_the_iteration_is_drawn_whole():
    work = Workload("w", 1, 1e-6, (LayerProfile("a", 1, 100, 1e-6), LayerProfile("b", 1, 100, 1e-6)))
    prediction = predict(work, schedule_from_cuts("x", [0, 1], 2), AffineCost(2e-6, 0))
    spans = planned_spans(work, prediction, 10_000, 14_000)
    assert [(span.name, span.start_ns, span.end_ns) for span in spans] == [
        ("forward b", 10_000, 10_500),
        ("forward a", 10_500, 11_000),
        ("backward a", 11_000, 12_000),
        ("backward b", 12_000, 13_000),
        ("bucket 0", 12_000, 14_000),
        ("bucket 1", 14_000, 16_000),
    ]
    assert spans[0].details == pytest.approx(
        {"planned_s": 0.5e-6, "planned_iteration_s": 6e-6, "measured_iteration_s": 4e-6}
    )
    assert spans[1].details == pytest.approx({"planned_s": 0.5e-6})


def test_a_plan_that_runs_into_forward_shows_its_own_messages_to_their_end():
    layers = (LayerProfile("a", 1, 100, 1e-6, 1e-6), LayerProfile("b", 1, 100, 1e-6, 1e-6))
    work = Workload("w", 1, 2e-6, layers)
    prediction = predict(work, schedule_from_cuts("x", [0, 1], 2, PIPELINED), AffineCost(1.5e-6, 0))
    # Backward until 2, messages 1 to 2.5 and 2.5 to 4, forward of b from 4 on, of a from 5 to 6.
    assert prediction.iteration_s == pytest.approx(6e-6)
    spans = planned_spans(work, prediction, 10_000, 16_000)
    assert [(span.name, span.start_ns, span.end_ns) for span in spans] == [
        ("forward b", 12_000, 13_000),
        ("forward a", 13_000, 14_000),
        ("backward a", 14_000, 15_000),
        ("backward b", 15_000, 16_000),
        ("bucket 0", 15_000, 16_500),
        ("bucket 1", 16_500, 18_000),
    ]
    from_backward = planned_spans(work, prediction, 10_000, 16_000, from_backward=True)
    assert [(span.name, span.start_ns, span.end_ns) for span in from_backward][:3] == [
        ("forward b", 14_000, 15_000),
        ("forward a", 15_000, 16_000),
        ("backward a", 10_000, 11_000),
    ]


@pytest.mark.parametrize("mode", [ALL_REDUCE, PIPELINED, SHARDED])
@pytest.mark.parametrize(("measured_ns", "pairs"), [(60_000, 1), (5_000, 2), (2_000, 4)])
def test_every_planned_iteration_has_every_bucket_and_no_row_overlaps(mode, measured_ns, pairs):
    """Planned 6 or 7 µs each, measured longer, shorter, and much shorter."""
    layers = tuple(LayerProfile(f"l{i}", 1, 100, 1e-6, 0.5e-6) for i in range(3))
    work = Workload("w", 1, 1.5e-6, layers)
    prediction = predict(work, schedule_from_cuts("x", [0, 1, 2], 3, mode), AffineCost(1.5e-6, 0))
    spans = []
    for start in range(10_000, 10_000 + 20 * measured_ns, measured_ns):
        spans += planned_spans(work, prediction, start, start + measured_ns)
    events = chrome_trace([spans], [0])["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    found = [event for event in events if event["ph"] == "X"]
    for name in {"bucket 0", "bucket 1", "bucket 2", *(["gather 0", "gather 2"] if mode == SHARDED else [])}:
        assert [event["name"] for event in found].count(name) == 20, name
    used = len({event["tid"] for event in found if event["name"] == "bucket 0"})
    assert used == 1 if pairs == 1 else used >= pairs
    for tid in {event["tid"] for event in found}:
        assert rows[tid].startswith("planned co")
        ends = sorted((event["ts"], event["ts"] + event["dur"]) for event in found if event["tid"] == tid)
        assert all(end <= start for (_, end), (start, _) in pairwise(ends))


def test_forward_times_leave_out_the_waits():
    a = IterationTimes(0, 100, [110, 150], 150, 200, 5, [(10, 40), (60, 70)])  # conv waits 30 and runs 20, fc 10 and 30
    work = workload_from_times("net", 8, ARENA.layers, [a])
    assert work.forward_s == pytest.approx(60e-9)
    assert [layer.forward_s for layer in work.layers] == pytest.approx([30e-9, 20e-9])


def test_the_trace_is_json_with_a_process_a_rank_and_no_overlap_after_rounding():
    rng = np.random.default_rng(0)
    edges = np.sort(rng.integers(10_000, 90_000, (2, 2, 40)), axis=-1)  # rank, thread, ns
    spans = [
        [
            Span(thread, f"s{i}", int(a), int(b), {})
            for thread in (COMPUTE, COMMUNICATION)
            for i, (a, b) in enumerate(pairwise(edges[rank, thread]))
        ]
        for rank in range(2)
    ]
    events = json.loads(json.dumps(chrome_trace(spans, [10_000, 9_500])))["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == 2 * 2 * 39
    assert min(event["ts"] for event in complete) >= 0
    for pid in (0, 1):
        for tid in (COMPUTE, COMMUNICATION):
            mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in complete if (e["pid"], e["tid"]) == (pid, tid))
            assert all(end <= start for (_, end), (start, _) in pairwise(mine))
