"""The comm thread: walks the schedule, waits until a bucket is complete, all-reduces its slice, marks it done.

The main thread's part of one iteration (train/exchange.py has the whole, for each mode):

    comm.begin(schedule)                                  # after forward
    net.backward(comm.gradient_ready)
    for message in comm.completed():
        optimizer.update(message.own, lr)

One thread a process, one message in flight, always in schedule order: so all ranks issue the same collectives in the
same order without negotiating, provided that their schedules and arenas are equal, and that is compared before a
schedule's first message.

Of a sharded schedule `completed` yields buckets whose own parts hold their sums; the main thread updates those parts,
calls `updated()`, and the thread gathers all parameters, in the opposite order, while the main thread goes on:
`gathered()` yields the buckets as they arrive.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

from mgwfbp.comm.agree import agree
from mgwfbp.comm.mpi import abort_job
from mgwfbp.comm.shards import owned
from mgwfbp.comm.sleep import sharpen_sleeps
from mgwfbp.comm.transports.host import HostTransport, Transport
from mgwfbp.comm.waiting import IDLE
from mgwfbp.comm.world import World
from mgwfbp.net.arena import Arena
from mgwfbp.schedule import SHARDED, Bucket, Schedule

SWITCH_S = (
    1e-4  # until a thread that waits for the interpreter lock gets it; Python's 5 ms would leave the comm thread idle
)


class Message(NamedTuple):
    """A bucket whose message has ended: its part of the arena, and when it was complete, sent and received.

    Times are `time.perf_counter_ns()`. Without a message (one rank) start and end are the ready time. `own` are the
    parts of it that this rank updates: all of it, unless the schedule is sharded. `name` is "bucket" or "gather"
    and the bucket's place in the schedule.
    """

    bucket: Bucket
    part: slice
    ready_ns: int
    start_ns: int
    end_ns: int
    own: tuple[slice, ...]
    name: str


class Turn(NamedTuple):
    """A bucket's message before it is sent: its slice, this rank's parts of it, and what to say of it."""

    bucket: Bucket
    part: slice
    own: tuple[slice, ...]
    name: str
    where: str
    waiting: str
    sending: str


class Comm(Protocol):
    """What the training loop asks of communication; `doing` says what it is waiting for."""

    doing: str

    def begin(self, schedule: Schedule) -> None:
        """An iteration starts; its buckets will be sent in the order of `schedule`."""

    def gradient_ready(self, layer: int) -> None:
        """The gradients of `layer` (gradient-ready order: 0, 1, 2, …) are written."""

    def completed(self) -> Iterator[Message]:
        """The buckets in schedule order, each as soon as its `own` parts hold the sum over all ranks."""

    def updated(self) -> None:
        """Of a sharded schedule: this rank's own parts of all parameters are updated."""

    def gathered(self) -> Iterator[Message]:
        """Of a sharded schedule: the buckets, last one first, as soon as their parameters are those of all ranks."""

    def own(self, schedule: Schedule) -> list[slice]:
        """The parts of the arena that this rank updates under `schedule`."""

    def close(self) -> None:
        """No more iterations."""


def open_comm(world: World, arena: Arena, transport: Transport | None = None) -> Comm:
    """A comm thread where there is someone to talk to, the plain path otherwise."""
    return Alone(arena) if world.size == 1 else CommThread(world, arena, transport)


class Alone:
    """One rank: its gradients are the sums already."""

    doing = "there is no comm thread"

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.ready_ns: list[int] = []

    def begin(self, schedule: Schedule) -> None:
        """Remember the schedule: the optimiser still goes bucket by bucket."""
        self.schedule = schedule
        self.ready_ns.clear()

    def gradient_ready(self, layer: int) -> None:
        """Note the time."""
        self.ready_ns.append(time.perf_counter_ns())

    def completed(self) -> Iterator[Message]:
        """All buckets at once."""
        for place, bucket in enumerate(self.schedule.buckets):
            ready, part = self.ready_ns[bucket.last], self.arena.slice_of(bucket.first, bucket.last)
            yield Message(bucket, part, ready, ready, ready, (part,), f"bucket {place}")

    def updated(self) -> None:
        """There is nobody to tell."""

    def gathered(self) -> Iterator[Message]:
        """Nothing has to arrive."""
        yield from ()

    def own(self, schedule: Schedule) -> list[slice]:
        """Everything."""
        return [self.arena.slice_of(bucket.first, bucket.last) for bucket in schedule.buckets]

    def close(self) -> None:
        """Nothing to end."""


class CommThread:
    """The thread and its hand-over points; see the module's text for how it is called.

    `transport` is the `host` one by default. An exception in the thread aborts the whole job, naming rank and bucket:
    the other ranks would wait for this one for ever. While it lives, Python's threads change turns every 0.1 ms.
    """

    def __init__(self, world: World, arena: Arena, transport: Transport | None = None) -> None:
        self.arena = arena
        self.comm = world.comm.Dup()  # its own: no other traffic can get between its messages
        self.transport = transport or HostTransport(self.comm)
        self.schedule: Schedule | None = None
        self._agreed: Schedule | None = None
        self._announced = self._pending = 0
        self.doing = IDLE  # for people: what it waits for
        self._turns_of: Schedule | None = None
        self._made: list[Turn] = []
        self._orders: SimpleQueue[Schedule | None] = SimpleQueue()
        # (last layer of a complete bucket, time in ns, the transport's mark)
        self._ready: SimpleQueue[tuple[int, int, Any]] = SimpleQueue()
        self._sent: SimpleQueue[Message] = SimpleQueue()
        self._updated: SimpleQueue[tuple[int, Any]] = SimpleQueue()  # all own parts are updated: time in ns, mark
        self._gathered: SimpleQueue[Message] = SimpleQueue()
        self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        self._thread = threading.Thread(target=self._run, name="comm", daemon=True)
        self._thread.start()

    def begin(self, schedule: Schedule) -> None:
        """Hand `schedule` to the thread.

        With another schedule than the iteration before this is collective: all ranks change in the same iteration, and
        compare what they change to. Raises SharedError on all of them where they differ, UserError if the schedule does
        not cover the layers, RuntimeError while the iteration before has buckets that `completed` did not yield.
        """
        if self._pending:
            sharded = self.schedule is not None and self.schedule.mode == SHARDED
            calls = "completed(), updated() and gathered()" if sharded else "completed()"
            raise RuntimeError(f"begin: {self._pending} buckets of the iteration before were not taken from {calls}")
        if schedule != self._agreed:
            schedule.check(len(self.arena.names))
            # The thread is idle now, so this comparison cannot meet one of its messages.
            cuts = " ".join(f"{bucket.first}-{bucket.last}" for bucket in schedule.buckets)
            lines = [*self.arena.description(), f"buckets {cuts}", f"mode {schedule.mode}"]
            if self._agreed is None:  # from equal weights and equal sums follow equal weights: once is enough
                lines.append(f"parameters {self.arena.parameters_sha256()}")
            agree(self.comm, "gradient layout, schedule or parameters", lines)
            self._agreed = schedule
        self.schedule = schedule
        self._last_layers = {bucket.last for bucket in schedule.buckets}
        self._announced, self._pending = 0, len(schedule.buckets)
        self._orders.put(schedule)

    def gradient_ready(self, layer: int) -> None:
        """Count one layer more; wake the thread if that completes a bucket."""
        if self.schedule is None:
            raise RuntimeError("gradient_ready: begin was not called, which hands the schedule to the comm thread")
        if layer != self._announced:
            raise RuntimeError(f"layer {layer} announced its gradient, but layer {self._announced} is next")
        self._announced += 1
        if layer in self._last_layers:
            self._ready.put((layer, time.perf_counter_ns(), self.transport.mark()))

    def completed(self) -> Iterator[Message]:
        """The buckets in schedule order, each as its message ends."""
        assert self.schedule is not None
        for _ in self.schedule.buckets:
            message = self._sent.get()
            if self.schedule.mode != SHARDED:
                self._pending -= 1
            yield message

    def updated(self) -> None:
        """Let the thread gather the parameters."""
        self._updated.put((time.perf_counter_ns(), self.transport.mark()))

    def gathered(self) -> Iterator[Message]:
        """The buckets from the last to the first, each as its parameters have arrived."""
        assert self.schedule is not None
        for _ in self.schedule.buckets:
            message = self._gathered.get()
            self._pending -= 1
            yield message

    def own(self, schedule: Schedule) -> list[slice]:
        """This rank's share of each bucket if the schedule is sharded, all buckets otherwise."""
        return [part for bucket in schedule.buckets for part in self._own(schedule, bucket)]

    def _turns(self, schedule: Schedule) -> list[Turn]:
        """The thread's work for `schedule`, made once: between two messages there is no time for it."""
        if schedule != self._turns_of:
            self._turns_of, self._made = schedule, []
            for place, bucket in enumerate(schedule.buckets):
                name = f"bucket {place} (layers {bucket.first} to {bucket.last})"
                turn = Turn(
                    bucket,
                    self.arena.slice_of(bucket.first, bucket.last),
                    self._own(schedule, bucket),
                    f"bucket {place}",
                    f"in the comm thread at {name}",
                    f"this rank has not sent {name} yet: it is the one that the others wait for",
                    f"this rank has sent {name} and waits for ranks that have not",
                )
                self._made.append(turn)
        return self._made

    def _own(self, schedule: Schedule, bucket: Bucket) -> tuple[slice, ...]:
        part = self.arena.slice_of(bucket.first, bucket.last)
        if schedule.mode != SHARDED:
            return (part,)
        return tuple(owned(part, self.comm.Get_rank(), self.comm.Get_size(), self.transport.most))

    def close(self) -> None:
        """End the thread and free its communicator; a second call does nothing. Between iterations, on all ranks."""
        if self._thread.is_alive():
            self._orders.put(None)
            self._thread.join()
            sys.setswitchinterval(self._switch_s)
            self.comm.Free()

    def _run(self) -> None:
        where = "in the comm thread"
        sharpen_sleeps()
        try:
            self.transport.enter_thread()
            while (schedule := self._orders.get()) is not None:
                ready: dict[int, tuple[int, Any]] = {}
                send = self.transport.reduce_scatter if schedule.mode == SHARDED else self.transport.all_reduce
                for turn in self._turns(schedule):
                    last, where = turn.bucket.last, turn.where
                    self.doing = turn.waiting
                    while last not in ready:  # layers announce in order: its last layer completes a bucket
                        layer, *when = self._ready.get()
                        ready[layer] = when[0], when[1]
                    ready_ns, mark = ready[last]
                    self.transport.wait_for(mark)
                    self.doing = turn.sending
                    start = time.perf_counter_ns()
                    send(self.arena.gradients[turn.part])
                    end = time.perf_counter_ns()
                    self._sent.put(Message(turn.bucket, turn.part, ready_ns, start, end, turn.own, turn.name))
                self.doing = IDLE
                if schedule.mode == SHARDED:
                    self.doing = "this rank has not updated its parts yet: the others wait for them"
                    where = "in the comm thread at the all-gather"
                    self._gather(schedule)
        except BaseException as error:
            abort_job(where, error)

    def _gather(self, schedule: Schedule) -> None:
        updated, mark = self._updated.get()
        self.transport.wait_for(mark)
        for place, bucket in reversed(list(enumerate(schedule.buckets))):
            part = self.arena.slice_of(bucket.first, bucket.last)
            self.doing = f"this rank has sent parameters {bucket.first} to {bucket.last}, waits for ranks that have not"
            start = time.perf_counter_ns()
            self.transport.all_gather(self.arena.parameters[part])
            self.doing = IDLE
            end = time.perf_counter_ns()
            self._gathered.put(Message(bucket, part, updated, start, end, (part,), f"gather {place}"))
