"""The training loop, and what may be hung into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np

from mgwfbp.comm import World, agree, choose_transport, closed_together, open_comm, open_transport, share_weights
from mgwfbp.data import Batch, Data, batches, total_iterations
from mgwfbp.errors import DivergedError, SharedError
from mgwfbp.kernels import keep_freed_memory, threads
from mgwfbp.net import Net, fuse
from mgwfbp.optim import Optimizer
from mgwfbp.optim.lr import check_lr, lr_policy
from mgwfbp.schedule import (
    ALL_REDUCE,
    NEEDS_ALL_SUMS,
    PIPELINED,
    SHARDED,
    AffineCost,
    Figures,
    Plan,
    Schedule,
    TableCost,
    check_replan,
    find_policy,
    unmerged,
)
from mgwfbp.train.evaluate import evaluate
from mgwfbp.train.exchange import AllReduced, make_exchange
from mgwfbp.train.gradients import Gradients
from mgwfbp.train.planner import Drift, Planner
from mgwfbp.train.step import train_step
from mgwfbp.train.times import Done
from mgwfbp.version import __version__


class Trainer:
    """Trains `net` on `data` on all ranks:  Trainer(lenet(), load("mnist5k"), SGD(lr=0.02)).fit(epochs=3)

    `global_batch` samples an iteration, or `batch_size` on each rank. `schedule` is a policy's name; `network` a cost
    to emulate, `transport` a transport's name, `algorithm` and `wire` how it sums, `replan` auto, never or a number of
    iterations; the first `profile_iterations` run unmerged and are measured. `lr` is a policy of optim/lr.py: what
    becomes of the optimiser's learning rate. `clip_norm` bounds the gradients' norm; with `skip` an iteration whose
    gradients are not finite is left out. `shift` and `flip` augment images, `seed` fixes all that is random, `threads`
    are those of each rank.

    Attributes that hooks use: `world`, `net`, `data`, `optimizer`, `exchange`, `planner`, `total` (iterations), `done`
    (of them), `say` (prints a line on rank 0), `stopping` (a SharedError to raise after the iteration, on all ranks),
    `sums` (loss over samples, and samples, of this epoch so far, as far as somebody adds them up).
    Raises UserError, on all ranks alike, for what the user can mend.
    """

    exchange: AllReduced
    planner: Planner
    _judged = -1  # after how many iterations `accuracy` was measured

    def __init__(
        self,
        net: Net,
        data: Data,
        optimizer: Optimizer,
        *,
        world: World | None = None,
        schedule: str = "optimal",
        batch_size: int = 32,
        global_batch: int | None = None,
        lr: str = "poly",
        clip_norm: float | None = None,
        skip: bool = False,
        shift: int = 0,
        flip: bool = False,
        seed: int = 1,
        network: AffineCost | TableCost | None = None,
        transport: str | None = None,
        algorithm: str = "mpi",
        wire: str = "fp32",
        replan: str = "auto",
        profile_iterations: int = 10,
        threads: int | None = None,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self.world = world or World()
        self.net, self.data, self.optimizer, self.hooks = net, data, optimizer, hooks
        self.policy, self.network, self.replan = schedule, network, replan
        self.transport, self.algorithm, self.wire = transport, algorithm, wire
        wanted = batch_size * self.world.size if global_batch is None else global_batch
        self.global_batch = min(wanted, len(data.train_labels))
        self.base_lr, self.lr_policy = optimizer.lr, lr
        self.clip_norm, self.skip, self.shift, self.flip, self.seed = clip_norm, skip, shift, flip, seed
        self.profile_iterations, self.threads = profile_iterations, threads or self.world.threads
        self.total, self.done, self.sums, self.accuracy = 0, 0, [0.0, 0.0], -1.0
        self.stopping: SharedError | None = None
        self.say: Callable[[str], None] = lambda text: print(text, flush=True) if self.world.rank == 0 else None

    def fit(self, epochs: int, iterations: int | None = None) -> Summary:
        """Go on from `done` iterations to the end of `epochs`, or of `iterations`. Collective; equal on all ranks."""
        with self._open(epochs, iterations):
            for batch in self._batches(epochs, iterations):
                with self._patiently():
                    self._follow(self.planner.schedule(batch.number))  # unmerged while profiled, then the plan's
                for hook in self.hooks:
                    hook.before(batch)
                self.optimizer.lr = self.base_lr * self.factor(batch.number, self.total)
                done = train_step(self.net, self.exchange, batch)
                self._saw(batch, done)
                for hook in self.hooks:
                    if hook.due(batch):
                        if hook.settled:
                            self.settle()
                        hook.after(batch, done)
                if not done.finite and not self.skip:
                    raise DivergedError(f"iteration {self.done}: a gradient is not finite: training has diverged")
                if self.stopping is not None and not batch.last:
                    raise self.stopping
            with self._patiently():
                summary = self.summary()
                for hook in self.hooks:
                    hook.finished(summary)
            return summary

    @contextmanager
    def _open(self, epochs: int, iterations: int | None = None) -> Iterator[None]:
        """Equal weights, transport, comm thread, hooks; closes all of them."""
        world, net = self.world, self.net
        self._check(epochs, iterations)
        with ExitStack() as stack:
            stack.enter_context(threads(self.threads))
            # NumPy's warnings would say on every rank, line by line, what the check of the gradients says once.
            stack.enter_context(np.errstate(over="ignore", invalid="ignore"))
            if net.kernels.xp is np:
                keep_freed_memory()
            share_weights(world, net)
            transport = cost = None
            halves = self.policy in ("sharded", "best") or self.policy.startswith("dear:")
            if world.size > 1:
                xp, nbytes = net.kernels.xp, net.arena.gradients.nbytes
                transport, _, cost = open_transport(
                    world, nbytes, self.network, halves,
                    xp=xp, wanted=self.transport, algorithm=self.algorithm, wire=self.wire,
                )  # fmt: skip
                stack.enter_context(closed_together(transport.close))
            self.comm = open_comm(world, net.arena, transport)
            stack.enter_context(closed_together(self.comm.close))
            with world.together():
                if not self.done:
                    self.optimizer.open(net.arena, net.kernels, world.add if world.size > 1 else None)
            self.gradients, self.figures = Gradients(net.arena, net.kernels, world, self.clip_norm), Figures()
            self.planner = Planner(
                world, net, self.policy, self.modes, self.global_batch, transport, cost,
                may_shard=halves, replan=self.replan, settle=lambda: self.exchange.drain(), told=self._told,
            )  # fmt: skip
            self._change(unmerged(len(net.learnable)))
            stack.enter_context(closed_together(lambda: self.exchange.drain()))
            for hook in self.hooks:
                stack.enter_context(hook.open(self) or ExitStack())
            if self.done >= self.total:
                raise SharedError(f"all {self.total} iterations are done; ask for more epochs")
            self.planner.profile_until = self.done + max(1, min(self.profile_iterations, (self.total - self.done) // 2))
            yield
            self.exchange.drain()
            self.optimizer.keep(None)  # all its arrays, should this go on
            self.optimizer.lr = self.base_lr

    def _batches(self, epochs: int, iterations: int | None) -> Iterator[Batch]:
        """This rank's batches, from `done` on."""
        return batches(
            self.data, self.global_batch, epochs=epochs, iterations=iterations, rank=self.world.rank,
            ranks=self.world.size, seed=self.seed, shift=self.shift, flip=self.flip,
            dtype=self.net.arena.parameters.dtype, first=self.done, xp=self.net.kernels.xp,
        )  # fmt: skip

    @contextmanager
    def _patiently(self) -> Iterator[None]:
        """Around what takes as long as it takes."""
        with ExitStack() as stack:
            for hook in self.hooks:
                if hook.paused is not None:
                    stack.enter_context(hook.paused())
            yield

    def _follow(self, schedule: Schedule) -> None:
        """Exchange gradients by `schedule` from here on. Collective, if it is another than before."""
        if schedule != self.exchange.schedule:
            self.settle()
            self._change(schedule)

    def settle(self) -> None:
        """Wait for all that is on its way. Raises SharedError, on all ranks, if a sum in it was not finite."""
        self.exchange.drain()
        self.exchange.check(self.done)

    def _saw(self, batch: Batch, done: Done) -> None:
        """Count an iteration that is over."""
        self.done = batch.number + 1
        self.planner.saw(done.times, batch.size)
        self.figures.add(done.figures, full=batch.size == self.global_batch, planned=self.planner.plan is not None)

    def _told(self, plan: Plan, drift: Drift | None) -> None:
        """The planner has made a plan."""
        if drift:
            self.figures.planned_again()
        for hook in self.hooks:
            hook.planned(plan, drift)

    def beat(self) -> None:
        """Something that takes long goes on."""
        for hook in self.hooks:
            hook.beat()

    def evaluate(self) -> tuple[float, float]:
        """(mean loss, accuracy) on the validation part. Collective; nothing is on its way."""
        loss, self.accuracy = evaluate(self.world, self.net, self.data, self.beat)
        self._judged = self.done
        return loss, self.accuracy

    def summary(self) -> Summary:
        """What came of the run. Collective."""
        self.settle()
        plan = self.planner.plan or self.planner.make()  # a run of one iteration
        if self._judged != self.done:
            self.evaluate()
        return Summary(
            model=self.net.name,
            world_size=self.world.size,
            schedule=self.policy,
            buckets=len(plan.schedule.buckets),
            iterations=self.total,
            global_batch_size=self.global_batch,
            **self.figures.measured(self.world.max, self.global_batch),
            predicted_iteration_s=plan.iteration_s,
            val_accuracy=self.accuracy,
            validated_on=self.data.validates,
            parameters_sha256=self.world.comm.allgather(self.net.arena.parameters_sha256()),
        )

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes that a schedule of this run may have."""
        return (ALL_REDUCE, SHARDED, *(() if self.clip_norm is not None or self.skip else (PIPELINED,)))

    def _check(self, epochs: int, iterations: int | None) -> None:
        """What can be wrong is said before anything is sent, and ranks that were told different things are told so."""
        self.stopping = None
        with self.world.together():
            find_policy(self.policy)
            check_replan(self.replan)
            self.factor = lr_policy(self.lr_policy)
            if self.policy == "pipelined" and PIPELINED not in self.modes:
                raise SharedError(f"--schedule pipelined: {NEEDS_ALL_SUMS}")
            if epochs < 1 or self.global_batch < 1 or (self.clip_norm is not None and not self.clip_norm > 0):
                raise SharedError("epochs, samples of a batch and clip_norm must be above 0")
            if self.net.classes < self.data.classes:
                raise SharedError(f"the data has {self.data.classes} classes, the net {self.net.classes}")
            if self.network is not None and not callable(self.network):
                raise SharedError('network must be a cost, as mg.network("k80-10gbe:64")')
            if self.shift >= min(self.data.shape[:2]):
                raise SharedError(f"a shift of {self.shift} moves images of {self.data.shape} out of sight")
            if not self.net.allocated:
                fuse(self.net).allocate(seed=self.seed)
            choose_transport(self.transport or "auto", self.net.kernels.xp)
            self.total = total_iterations(len(self.data.train_labels), self.global_batch, epochs, iterations)
            check_lr(self.lr_policy, self.base_lr, self.total)
        told = [f"{key}={value}" for key, value in vars(self).items() if isinstance(value, str | int | float | None)]
        told = [line for line in told if not line.startswith("threads=")]
        told += [f"emulated network {self.network}", self.optimizer.description()]
        data = [f"data {self.data.name}", f"{len(self.data.train_labels)} samples", f"files {self.data.fingerprint}"]
        ours = [f"kernel set {self.net.kernels.name}", f"mgwfbp {__version__}"]
        lines = [f"net {self.net.name}", *self.net.arena.description(), *told, *data, *ours]
        agree(self.world.comm, "model, options or version", lines)

    def _change(self, schedule: Schedule) -> None:
        self.exchange = make_exchange(schedule, self.comm, self.net, self.optimizer, self.gradients, self.skip)


class Summary(dict[str, Any]):
    """What came of a run, as summary.json has it: times in seconds, medians of the slowest rank."""

    def __str__(self) -> str:
        ranks, buckets = self["world_size"], self["buckets"]
        measured, predicted = (f"{self[key] * 1e3:.2f}" for key in ("iteration_s", "predicted_iteration_s"))
        return (
            f"{self['model']} on {ranks} rank{'s'[: ranks > 1]}: validation accuracy {self['val_accuracy']:.4f} after "
            f"{self['iterations']} iterations of {self['global_batch_size']} samples; {measured} ms each, "
            f"{predicted} predicted ({self['schedule']}, {buckets} bucket{'s'[: buckets > 1]})"
        )


class Hook:
    """Housekeeping between iterations. Override what you need.

    Hooks run on all ranks, in the order of the list. They may communicate, and `due` must say the same on all ranks, so
    it may ask only of what is equal on them: a batch's number, epoch and size, the trainer's `stopping`. Then hooks
    cannot wait for each other for ever.
    """

    trainer: Trainer
    settled = False  # whether `after` reads parameters: then nothing may be on its way to them
    saves = False  # whether `after` leaves something to go on from
    paused: Any = None  # makes a context manager around what takes as long as it takes: a measurement, a checkpoint

    def open(self, trainer: Trainer) -> AbstractContextManager[Any] | None:
        """A run begins, or goes on; all is there but batches. What is returned is entered, and left at its end."""
        self.trainer = trainer
        return None

    def before(self, batch: Batch) -> None:
        """`batch` will be trained on."""

    def due(self, batch: Batch) -> bool:
        """Whether `after` is to be called. Must be the same on all ranks."""
        return True

    def after(self, batch: Batch, done: Done) -> None:
        """`batch` was trained on."""

    def planned(self, plan: Plan, drift: Drift | None) -> None:
        """From here on `plan` is followed; with `drift` it takes another's place."""

    def beat(self) -> None:
        """Something that takes long goes on, on this rank."""

    def finished(self, summary: Summary) -> None:
        """The run is over, and not before its time. May add to the summary, before Record writes it."""
