"""The comm thread, its transports and what ranks agree on, between real ranks."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from mgwfbp.comm import CommThread, HostTransport, agree, measure_all_reduce
from mgwfbp.comm.transports.host import poll_interval_s
from mgwfbp.errors import SharedError, UserError
from mgwfbp.net import Arena, LayerSpec
from mgwfbp.schedule import SHARDED, Bucket, Network, Schedule, schedule_from_cuts, unmerged

LAYERS = 5


def make_arena(extra=0):
    return Arena([LayerSpec(f"l{i}", [("w", (10 * i + 3 + extra,))]) for i in range(LAYERS)])


def fill(arena, rank, iteration):
    """Whole numbers, so that sums are exact; padding stays zero."""
    for layer in range(LAYERS):
        (_, gradient) = arena.views(layer)["w"]
        gradient[...] = np.arange(gradient.size) * (rank + 1) + layer + iteration


def expected(arena, size, iteration):
    total = make_arena()
    for rank in range(size):
        part = make_arena()
        fill(part, rank, iteration)
        total.gradients += part.gradients
    return total.gradients


SCHEDULES = [
    unmerged(LAYERS),
    schedule_from_cuts("single", [0], LAYERS),
    schedule_from_cuts("two", [0, 2], LAYERS),
    Schedule("late first", (Bucket(3, 4), Bucket(0, 1), Bucket(2, 2))),  # a send order that is not the ready order
]


def test_every_schedule_sums_every_gradient_in_many_iterations(world):
    arena = make_arena()
    comm = CommThread(world, arena)
    for iteration in range(24):
        schedule = SCHEDULES[iteration % len(SCHEDULES)]
        comm.begin(schedule)
        fill(arena, world.rank, iteration)
        for layer in range(LAYERS):
            comm.gradient_ready(layer)
        seen = list(comm.completed())
        assert tuple(sent.bucket for sent in seen) == schedule.buckets
        assert all(sent.ready_ns <= sent.end_ns and sent.start_ns <= sent.end_ns for sent in seen)
        assert np.array_equal(arena.gradients, expected(arena, world.size, iteration))
    comm.close()


@pytest.mark.parametrize("most", [None, 100])
def test_a_sharded_schedule_sums_each_ranks_parts_and_gathers_all_parameters(world, monkeypatch, most):
    if most:
        monkeypatch.setenv("MGWFBP_MAX_MESSAGE", str(most))
    arena, schedule = make_arena(), schedule_from_cuts("x", [0, 2, 3], LAYERS, SHARDED)
    comm = CommThread(world, arena)
    own = comm.own(schedule)
    lengths = world.comm.allgather(sum(part.stop - part.start for part in own))
    assert sum(lengths) == len(arena.gradients)
    assert max(lengths) - min(lengths) <= len(own)
    for iteration in range(3):
        comm.begin(schedule)
        fill(arena, world.rank, iteration)
        for layer in range(LAYERS):
            comm.gradient_ready(layer)
        taken = [sent.own for sent in comm.completed()]
        assert [part for parts in taken for part in parts] == own
        for part in own:
            assert np.array_equal(arena.gradients[part], expected(arena, world.size, iteration)[part])
            arena.parameters[part] += arena.gradients[part]
        comm.updated()
        assert [sent.bucket for sent in comm.gathered()] == list(reversed(schedule.buckets))
    assert np.array_equal(arena.parameters, sum(expected(arena, world.size, iteration) for iteration in range(3)))
    comm.close()


class Watching(HostTransport):
    """The real transport, which also notes how many layers had announced when each message was sent."""

    def __init__(self, comm, announced):
        super().__init__(comm)
        self.announced, self.seen = announced, []

    def all_reduce(self, array):
        self.seen.append((len(self.announced), array.size))
        super().all_reduce(array)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.policy)
def test_nothing_is_sent_before_its_last_layer_and_all_in_schedule_order(world, schedule):
    arena, announced = make_arena(), []
    comm = CommThread(world, arena)
    transport = Watching(comm.comm, announced)
    comm.transport = transport
    comm.begin(schedule)
    pause = threading.Event()
    for layer in range(LAYERS):
        pause.wait(0.01 * (1 + (world.rank + layer) % 2))  # time for a message that should not leave
        announced.append(layer)
        comm.gradient_ready(layer)
    list(comm.completed())
    comm.close()
    for bucket, (known, size) in zip(schedule.buckets, transport.seen, strict=True):
        assert known >= bucket.last + 1
        part = arena.slice_of(bucket.first, bucket.last)
        assert size == part.stop - part.start


def test_layers_must_announce_in_order(world):
    comm = CommThread(world, make_arena())
    comm.begin(unmerged(LAYERS))
    with pytest.raises(RuntimeError, match="layer 1 announced its gradient, but layer 0 is next"):
        comm.gradient_ready(1)
    for layer in range(LAYERS):
        comm.gradient_ready(layer)
    list(comm.completed())
    comm.close()


@pytest.mark.parametrize("what", ["layout", "cuts"])
def test_ranks_that_differ_stop_before_a_message_with_both_fingerprints(world, what):
    odd = world.rank == world.size - 1
    arena = make_arena(extra=1 if odd and what == "layout" else 0)
    comm = CommThread(world, arena)
    comm.transport = Watching(comm.comm, [])
    schedule = SCHEDULES[1] if odd and what == "cuts" else SCHEDULES[2]
    with pytest.raises(SharedError, match="nothing was sent: rank 0 has fingerprint") as caught:
        comm.begin(schedule)
    assert comm.transport.seen == []
    text = str(caught.value)
    assert f"rank {world.size - 1} has" in text
    for side in ("(3,)", "(4,)") if what == "layout" else ("buckets 0-1 2-4", "buckets 0-4"):
        assert side in text
    assert len(set(world.comm.allgather(text))) == 1
    comm.close()


def test_an_equal_schedule_is_no_change_and_an_unfinished_iteration_is_refused(world):
    arena = make_arena()
    comm = CommThread(world, arena)
    for iteration in range(4):  # a rank may make its schedule anew: what counts is what it says
        schedule = schedule_from_cuts("two", [0, 2], LAYERS) if (world.rank + iteration) % 2 else SCHEDULES[2]
        comm.begin(schedule)
        for layer in range(LAYERS):
            comm.gradient_ready(layer)
        if iteration == 3:
            with pytest.raises(RuntimeError, match="2 buckets of the iteration before were not taken"):
                comm.begin(schedule)
        assert len(list(comm.completed())) == 2
    comm.close()


def test_agree_says_nothing_when_all_is_equal_and_notices_a_missing_line(world):
    agree(world.comm, "things", ["a", "b"])
    with pytest.raises(SharedError, match=r"with \[b\].*with \[nothing\]"):
        agree(world.comm, "things", ["a", "b"] if world.rank == 0 else ["a"])


def test_a_mistake_on_one_rank_is_everyones(world):
    def try_it(failing, message):
        with world.together():
            if world.rank in failing:
                raise UserError(message)

    with pytest.raises(SharedError, match=r"^rank 1 on \S+: no such folder$"):
        try_it([1], "no such folder")
    with pytest.raises(SharedError, match="^wrong for all$"):
        try_it(range(world.size), "wrong for all")
    try_it([], "")


def test_world_knows_its_size_and_reduces(world):
    assert world.size == world.local_size
    assert world.rank == world.local_rank
    assert world.threads >= 1
    assert world.max([world.rank, -world.rank]) == [world.size - 1, 0]
    assert world.sum([1.0, world.rank]) == [world.size, world.size * (world.size - 1) / 2]


def test_the_measured_cost_is_a_network_file(world):
    network = measure_all_reduce(world, 20_000, seconds_a_size=0.001)
    assert network.nbytes == (256, 1024, 4096, 16384, 20224)
    assert network.ranks == world.size
    assert all(seconds > 0 for seconds in network.seconds)
    assert network.a_s >= 0
    assert network.b_s_per_byte >= 0
    assert len(set(world.comm.allgather(str(network.seconds)))) == 1
    assert Network.from_dict(network.to_dict()) == network


@pytest.mark.parametrize("text", ["fast", "-1", "nan", "1e9"])
def test_a_polling_interval_must_be_a_number(monkeypatch, text):
    monkeypatch.setenv("MGWFBP_POLL_US", text)
    with pytest.raises(UserError, match="must be a number of microseconds"):
        poll_interval_s()
