"""Optimisers: a file each, found by being in this folder."""

from importlib import import_module
from pkgutil import iter_modules

from mgwfbp.optim.optimizer import OPTIMIZERS, Optimizer, factors, make_optimizer, optimizer, rates_from_text

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["OPTIMIZERS", "Optimizer", "factors", "make_optimizer", "optimizer", "rates_from_text"]
