"""Play a workload: its layers become waits, its gradients real messages; what was predicted stands beside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median, quantiles
from time import perf_counter_ns as clock
from typing import Any

from mgwfbp.comm import CommThread, Message, Transport, World, agree, sharpen_sleeps, sleep_until
from mgwfbp.errors import UserError
from mgwfbp.net import Arena, LayerSpec
from mgwfbp.runs.timeline import COMPUTE, Span, chrome_trace, message_spans, planned_spans
from mgwfbp.schedule import (
    PIPELINED,
    SHARDED,
    Bucket,
    Cost,
    IterationTimes,
    Schedule,
    Workload,
    make_schedule,
    predict,
)
from mgwfbp.train.times import Done, Taken

ITEM = 4  # bytes of a float32


def open_replay(workload: Workload) -> tuple[Workload, Arena]:
    """(the workload with its sizes rounded up to the arena's, an arena with its layers). Raises UserError."""
    specs = [LayerSpec(layer.name, [("gradient", (-(-layer.nbytes // ITEM),))]) for layer in workload.layers]
    try:
        arena = Arena(specs)
    except (MemoryError, ValueError):
        raise UserError(f"workload {workload.name}: no memory for {workload.nbytes:,} bytes of gradients") from None
    layers = zip(workload.layers, arena.layer_nbytes, strict=True)
    return replace(workload, layers=tuple(replace(layer, nbytes=nbytes) for layer, nbytes in layers)), arena


def replay(
    world: World,
    workload: Workload,
    arena: Arena,
    cost: Cost,
    names: Sequence[str],
    rounds: int,
    transport: Transport | None = None,
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """(a row for each policy in `names`, the Chrome trace of the last round on rank 0). Collective.

    `workload` and `arena` are `open_replay`'s; `cost` is what messages will take, or were measured to. The policies
    take turns, `rounds` times, after one round that is not counted. The comm thread, the transport and the messages are
    the ones of training; only the layers are replaced, by waiting until their time is over.
    """
    schedules = plan_all(world, workload, cost, names)
    sharpen_sleeps()
    comm = CommThread(world, arena, transport)
    world.comm.Barrier()
    zero = clock()

    def play(schedule: Schedule) -> Done:
        return _iteration(world, comm, workload, schedule)

    turns = take_turns(play, schedules, rounds)
    comm.close()
    rows, spans = [], []
    for schedule, done in zip(schedules, turns, strict=True):
        prediction = predict(workload, schedule, cost)
        rows.append(measured_row(world, schedule, prediction.iteration_s, done))
        times = done[-1].times
        spans += named(schedule.policy, _spans(done[-1], arena, rounds))
        planned = planned_spans(workload, prediction, times.start, times.end, from_backward=True)
        spans += named(schedule.policy, planned)
    gathered = world.comm.gather((spans, zero), root=0)
    trace = chrome_trace([spans for spans, _ in gathered], [zero for _, zero in gathered]) if gathered else None
    return rows, trace


def plan_all(world: World, workload: Workload, cost: Cost, names: Sequence[str]) -> list[Schedule]:
    """The schedules of the policies `names`, made by rank 0. Collective; raises UserError on all ranks."""
    agree(world.comm, "schedules", list(names))
    schedules = None
    with world.together():
        if world.rank == 0:
            schedules = [make_schedule(name, workload, cost) for name in names]
    return world.comm.bcast(schedules, root=0)


def take_turns(play: Callable[[Schedule], Done], schedules: Sequence[Schedule], rounds: int) -> list[list[Done]]:
    """For each schedule its `rounds` iterations; in a round each has its turn. The round before is not counted."""
    done: list[list[Done]] = [[] for _ in schedules]
    for number in range(rounds + 1):
        for schedule, own in zip(schedules, done, strict=True):
            iteration = play(schedule)
            if number:
                own.append(iteration)
    return done


def measured_row(world: World, schedule: Schedule, predicted_s: float, done: Sequence[Done]) -> dict[str, Any]:
    """The object of one schedule: medians over its iterations, each as long as its slowest rank's. Collective.

    `iteration_s` is what was predicted, as in `mgwfbp plan`, and so is `predicted_iteration_s`, its name in a run's
    summary; from `measured_iteration_s` on all is measured. `bucket_layers` are each bucket's first and last layer.
    """
    seconds = world.max([iteration.seconds for iteration in done])
    low, _, high = quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
    (unhidden,) = world.max([1 - median(iteration.overlap for iteration in done)])
    behind = [median(iteration.behind_backward_s for iteration in done)]
    behind.append(median(iteration.behind_forward_s for iteration in done))
    backward, forward = (total / world.size for total in world.sum(behind))
    return {
        "schedule": schedule.policy,
        "buckets": len(schedule.buckets),
        "bucket_layers": [[bucket.first, bucket.last] for bucket in schedule.buckets],
        "iteration_s": predicted_s,
        "predicted_iteration_s": predicted_s,
        "measured_iteration_s": median(seconds),
        "ratio": median(seconds) / predicted_s,
        "ratio_low": low / predicted_s,
        "ratio_high": high / predicted_s,
        "overlap": 1 - unhidden,
        "behind_backward_s": backward,
        "behind_forward_s": forward,
    }


def named(policy: str, spans: Sequence[Span]) -> list[Span]:
    """`spans`, each with the policy in its details."""
    return [span._replace(details={**span.details, "schedule": policy}) for span in spans]


def _iteration(world: World, comm: CommThread, workload: Workload, schedule: Schedule) -> Done:
    """Backward, then the next forward: each layer is a wait until its time is over. Nothing is updated."""
    comm.begin(schedule)
    world.comm.Barrier()
    start = clock()
    ready = []
    for layer, ready_s in enumerate(workload.ready_s()):
        sleep_until(start + round(ready_s * 1e9))
        ready.append(clock())
        comm.gradient_ready(layer)
    backward_end = clock()
    taken: list[Taken] = []

    def take(coming: Iterator[Message]) -> Bucket:
        asked, message = clock(), next(coming)
        arrived = clock()
        taken.append(Taken(message, asked, arrived, arrived))
        return message.bucket

    coming, missing = comm.completed(), set(range(len(workload.layers)))
    if schedule.mode != PIPELINED:
        for _ in schedule.buckets:
            take(coming)
    if schedule.mode == SHARDED:
        comm.updated()
        coming = comm.gathered()
    elif schedule.mode != PIPELINED:
        missing.clear()
    left, forward = workload.forward_left_s(), []
    end = clock() + round((workload.forward_s - left[-1]) * 1e9)
    sleep_until(end)
    for layer in reversed(range(len(left))):
        began, waited = end, layer in missing
        while layer in missing:
            bucket = take(coming)
            missing -= set(range(bucket.first, bucket.last + 1))
        begin = clock() if waited else end
        forward.append((began, begin))
        end = begin + round((left[layer] - (left[layer - 1] if layer else 0.0)) * 1e9)
        sleep_until(end)
    return Done(0.0, 0, True, IterationTimes(start, end, ready, backward_end, clock(), 0, forward), taken)


def _spans(done: Done, arena: Arena, number: int) -> list[Span]:
    """The spans of one iteration for the timeline."""
    times, names = done.times, arena.names
    spans = [
        Span(COMPUTE, f"backward {name}", begin, end, {})
        for name, begin, end in zip(names, [times.start, *times.ready[:-1]], times.ready, strict=True)
    ]
    spans[0].details["iteration"] = number
    ends = [began for began, _ in times.forward[1:]]
    for name, (_, begin), end in zip(reversed(names), times.forward, [*ends, times.forward_end], strict=True):
        spans.append(Span(COMPUTE, f"forward {name}", begin, end, {}))
    for one in done.taken:
        spans += message_spans(one, names, arena.layer_nbytes)
    return spans
