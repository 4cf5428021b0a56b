"""The hook that leaves checkpoints behind, and takes a run up where one left it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from mgwfbp.data import Batch
from mgwfbp.net import to_host
from mgwfbp.runs.checkpoint import Checkpoint, newest, save
from mgwfbp.runs.config import PLAN, deciding
from mgwfbp.runs.record import Record
from mgwfbp.runs.resume import check_same_training
from mgwfbp.schedule import plan_from_dict
from mgwfbp.train.loop import Hook, Trainer
from mgwfbp.train.times import Done


class Checkpoints(Hook):
    """Writes one every `every` iterations (every epoch by default) below `folder`; the newest `keep` stay.

    With `resume` a run begins where the newest one there left it, if there is one; it must be of the same net and
    global batch. Rank 0 alone writes. `record` has what is logged, and logs what is pending first.
    """

    settled = saves = True

    def __init__(
        self,
        folder: str | Path | None,
        every: int | None = None,
        keep: int = 3,
        *,
        resume: bool = True,
        record: Record | None = None,
    ) -> None:
        self.folder, self.every, self.keep = Path(folder) if folder is not None else None, every, keep
        self.resume, self.record = resume, record
        self.found: Checkpoint | None = None  # on rank 0: where to begin, where somebody else has looked for it
        self.config: Mapping[str, Any] = {}  # the run's options, to be written with it
        self.changes: Sequence[Mapping[str, Any]] = ()  # of options in a run that was resumed, to be written with it
        self.patience: Any = nullcontext  # around the writing, which takes as long as it takes

    def open(self, trainer: Trainer) -> AbstractContextManager[Any] | None:
        """Go on from a checkpoint, if there is one. Collective. Raises SharedError if it cannot be."""
        self.trainer = trainer
        if trainer.done:  # `fit` goes on
            return None
        told = {
            "model": trainer.net.name,
            "schedule": trainer.policy,
            "network": repr(trainer.network),
            "kernels": trainer.net.kernels.name,
        }
        self.config = {**told, "threads": trainer.threads, "batch_size": trainer.global_batch, **self.config}
        found, self.found = self.found, None
        with trainer.world.together():
            if self.resume and found is None and trainer.world.rank == 0 and self.folder:
                found = newest(self.folder)
                if found is not None:
                    check_same_training(found, trainer.global_batch, trainer.net, trainer.data, trainer.optimizer)
        with self.patience():
            self._restore(found)
        return None

    def due(self, batch: Batch) -> bool:
        """At the end of an epoch or so many iterations, at the end of the run, and when it is asked to stop."""
        due = batch.ends_epoch if self.every is None else (batch.number + 1) % self.every == 0
        return due or batch.last or self.trainer.stopping is not None

    def after(self, batch: Batch, done: Done) -> None:
        """Write a checkpoint on rank 0. Collective. Raises SharedError if it cannot be written."""
        if self.record is not None:
            self.record.flush()
        with self.patience():
            self._leave(batch.number + 1)

    def _leave(self, iteration: int) -> None:
        trainer, world, net = self.trainer, self.trainer.world, self.trainer.net
        slots, states = trainer.optimizer.whole(), world.comm.gather(to_host(net.state), root=0)
        with world.together():
            if self.folder is not None and states is not None:
                plan = trainer.planner.plan
                about = {
                    "config": dict(self.config),
                    "world_size": world.size,
                    "global_batch_size": trainer.global_batch,
                    "layout": net.arena.fingerprint(),
                    "data": trainer.data.fingerprint,
                    "epoch_sums": trainer.sums,
                    "plan": plan.to_dict() if plan else None,
                    "tensors": net.places,
                    "input": trainer.data.inputs.to_dict(),
                    **({"changes": list(self.changes)} if self.changes else {}),
                }
                arrays = {"parameters": to_host(net.arena.parameters), **slots, "state": np.stack(states)}
                if len(net.frozen):
                    arrays["frozen"] = to_host(net.frozen)
                save(self.folder / "checkpoints", iteration, arrays, about, self.keep)

    def _restore(self, found: Checkpoint | None) -> None:
        """Rank 0 has read the checkpoint and gives everyone theirs.

        At another number of ranks BatchNorm's statistics are the mean over the ranks there were, and there is no plan,
        as there is none for another policy or network than before.
        """
        trainer, world = self.trainer, self.trainer.world
        told = world.comm.bcast(found and (found.iteration, found.record, str(found.path)), root=0)
        if told is None:
            return
        iteration, about, path = told
        arrays = world.comm.bcast(found.arrays if found else None, root=0)
        xp, net = trainer.net.kernels.xp, trainer.net
        net.arena.parameters[...] = xp.asarray(arrays["parameters"])
        if len(net.frozen):
            net.frozen[...] = xp.asarray(arrays["frozen"])
        trainer.optimizer.load(arrays, iteration)
        states, same = arrays["state"], about.get("world_size") == world.size
        net.state[...] = xp.asarray(states[world.rank] if same else states.mean(axis=0))
        trainer.sums[:], trainer.done, before = about["epoch_sums"], iteration, about["config"]
        if same and about.get("plan") and all(before.get(key) == self.config.get(key) for key in deciding(PLAN)):
            plan = plan_from_dict(about["plan"], f"checkpoint {path}")
            if plan.schedule.mode in trainer.modes:  # clipping may have come since
                trainer.planner.plan = plan
        trainer.say(f"resumed after iteration {iteration}")
