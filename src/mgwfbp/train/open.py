"""Opening an exchange: equal weights, the right global batch, a transport and a comm thread, all closed in the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from mgwfbp.comm import World, agree, closed_together, open_comm, own_transport, share_weights
from mgwfbp.errors import SharedError
from mgwfbp.kernels import threads as limit
from mgwfbp.net import Net
from mgwfbp.optim import Optimizer
from mgwfbp.schedule import Schedule, untimed
from mgwfbp.train.exchange import AllReduced, make_exchange
from mgwfbp.train.gradients import Gradients


@contextmanager
def exchange(
    world: World,
    net: Net,
    optimizer: Optimizer,
    schedule: Schedule | str = "wfbp",
    *,
    clip_norm: float | None = None,
    skip: bool = False,
    transport: str | None = None,
    algorithm: str = "mpi",
    wire: str = "fp32",
    threads: int | None = None,
) -> Iterator[AllReduced]:
    """For a loop of one's own: the exchange of `net`'s gradients by `schedule`, its comm thread, and all it needs.

        with exchange(World(), net, SGD(lr=0.1), "wfbp") as ex:
            loss, right = net.forward(images, labels, step, before_layer=ex.before_layer)
            ex.begin()
            net.backward(ex.gradient_ready)
            ex.finish()

    All ranks get rank 0's weights. The loss is a mean over the samples of all ranks, which `net.forward` asks them for
    unless it is told (`batch.size`); that it was told right is looked at in the first iteration. `schedule` is one, or
    a policy's name that needs no times: wfbp, single, bucket:SIZE, dear:SIZE. The rest as in Trainer. Sharded, each
    rank sees its own part of the sums: whether all were finite is asked at the end, or by `check`. Collective; raises
    UserError on all ranks.
    """
    with world.together():
        if not net.allocated:
            net.allocate()
        chosen = schedule if isinstance(schedule, Schedule) else untimed(schedule, net.arena.layers)
        chosen.check(len(net.learnable))
    agree(world.comm, "net or optimizer", [*net.arena.description(), optimizer.description()])
    share_weights(world, net)
    with ExitStack() as stack:
        stack.enter_context(limit(threads or world.threads))
        carrier = None
        if world.size > 1:
            carrier = own_transport(world, len(net.arena.gradients), net.kernels.xp, transport, algorithm, wire)
            stack.enter_context(closed_together(carrier.close))
        comm = open_comm(world, net.arena, carrier)
        stack.enter_context(closed_together(comm.close))
        with world.together():
            optimizer.open(net.arena, net.kernels, world.add if world.size > 1 else None)
        before, net.samples_of_all = net.samples_of_all, lambda rows: int(world.sum([rows])[0])
        stack.callback(setattr, net, "samples_of_all", before)
        made = make_exchange(chosen, comm, net, optimizer, Gradients(net.arena, net.kernels, world, clip_norm), skip)
        made.first_batch = lambda: check_batch(world, net)
        stack.enter_context(closed_together(made.drain))
        yield made
        made.drain()
        made.check(optimizer.steps)


def check_batch(world: World, net: Net) -> None:
    """Raise SharedError, on all ranks, unless the loss is a mean over the samples of all ranks. Collective."""
    batches = world.comm.allgather(net.last_batch)
    samples = sum(rows for rows, _ in batches)
    wrong = next((size for _, size in batches if size != samples), None)
    if wrong is not None:
        raise SharedError(
            f"the ranks have {samples} samples together, but forward was told of {wrong}: the learning rate would be "
            "another; give it the global batch (batch.size), or leave it out"
        )
