"""mgwfbp: data-parallel SGD that you can read.

    import mgwfbp as mg

    trainer = mg.Trainer(mg.models.lenet(), mg.load("synthetic:28x28x1x10"), mg.SGD(lr=0.02))   # whole runs
    print(trainer.fit(epochs=3))

    with mg.exchange(mg.World(), net, mg.SGD(lr=0.02), "wfbp") as exchange:                      # one's own loop
        ...

    mg.plan(mg.workload("k80-googlenet"), mg.network("k80-10gbe:64"), "pipelined").iteration_s   # on paper, no MPI

The names below are public and stable; docs/library.md has an example of each. They are imported when they are asked
for: `import mgwfbp` costs nothing and starts no MPI, the first `World()` does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mgwfbp.version import __version__

# name -> the module that has it, or "." and the module that it is
_PUBLIC = {
    # whole runs
    "Trainer": "train.loop",
    "Hook": "train.loop",
    "Record": "runs.record",
    "Validate": "runs.record",
    "Checkpoints": "runs.checkpoints",
    "Stop": "watch.signals",
    "Watchdog": "watch.watchdog",
    "Config": "runs.config",
    "run": "runs.start",
    # what was trained
    "trained": "runs.trained",
    "Trained": "runs.trained",
    "load_weights": "runs.trained",
    # one's own loop
    "World": "comm.world",
    "Net": "net.net",
    "layers": ".net.layers",
    "models": ".models",
    "exchange": "train.open",
    "train_step": "train.step",
    "evaluate": "train.evaluate",
    "load": "data",
    "Dataset": "data",
    "batches": "data",
    "SGD": "optim.sgd",
    "Adam": "optim.adam",
    "Optimizer": "optim",
    "check_gradients": "net.check",
    # on paper
    "workload": "simulate.specs",
    "network": "simulate.specs",
    "plan": "schedule.plan",
    "AffineCost": "schedule",
    "Schedule": "schedule",
    "schedule_from_cuts": "schedule",
    # what is yours gets a name by these
    "model": "models",
    "dataset": "data",
    "optimizer": "optim",
    "policy": "schedule",
    "transport": "comm",
    "HostTransport": "comm",
    "UserError": "errors",
}

__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:
    from mgwfbp import models
    from mgwfbp.comm import HostTransport, World, transport
    from mgwfbp.data import Dataset, batches, dataset, load
    from mgwfbp.errors import UserError
    from mgwfbp.models import model
    from mgwfbp.net import Net, layers
    from mgwfbp.net.check import check_gradients
    from mgwfbp.optim import Optimizer, optimizer
    from mgwfbp.optim.adam import Adam
    from mgwfbp.optim.sgd import SGD
    from mgwfbp.runs.checkpoints import Checkpoints
    from mgwfbp.runs.config import Config
    from mgwfbp.runs.record import Record, Validate
    from mgwfbp.runs.start import run
    from mgwfbp.runs.trained import Trained, load_weights, trained
    from mgwfbp.schedule import AffineCost, Schedule, plan, policy, schedule_from_cuts
    from mgwfbp.simulate.specs import network, workload
    from mgwfbp.train.evaluate import evaluate
    from mgwfbp.train.loop import Hook, Trainer
    from mgwfbp.train.open import exchange
    from mgwfbp.train.step import train_step
    from mgwfbp.watch.signals import Stop
    from mgwfbp.watch.watchdog import Watchdog


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mgwfbp' has no attribute {name!r}; public are {', '.join(__all__)}")
    module = import_module(f"mgwfbp.{_PUBLIC[name].lstrip('.')}")
    found = module if _PUBLIC[name][0] == "." else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
