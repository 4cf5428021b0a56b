"""What an optimiser is: arrays that it keeps beside the parameters, and a rule for a part of them.

Yours is one class: `slots` names its arrays, `rule` updates parameters in place. Schedules, sharding, clipping, skipped
iterations and checkpoints need not be known to it:

    @optimizer("momentum")
    class Momentum(Optimizer):
        slots = ("velocity",)

        def rule(self, lr, w, g, velocity):
            velocity *= 0.9
            velocity += g
            w -= lr * velocity
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from mgwfbp.errors import UserError, check_free, unknown_name
from mgwfbp.fields import assignments
from mgwfbp.kernels import Array, Kernels
from mgwfbp.net import Arena, to_host


class Optimizer:
    """Updates parts of an arena. `lr` may be changed between iterations; `steps` counts them, from 1 in the first.

    `rates` are factors of it for layers or tensors by their names, {"stage1/*": 0.1, "*.bias": 2}; of several that fit
    the last counts. After `open` the attribute `arrays` has a flat array like the arena's for each of `slots`; after
    `keep` only its kept parts, one behind the other.
    """

    slots: ClassVar[tuple[str, ...]] = ()
    rates: Mapping[str, float] = MappingProxyType({})

    def __init__(self, lr: float) -> None:
        self.lr, self.steps = lr, 0
        self.need(math.isfinite(lr) and lr >= 0, "a finite learning rate ≥ 0", lr)

    def need(self, condition: bool, needs: str, got: object) -> None:
        """Raise UserError naming this optimiser unless `condition`: it `needs` one thing and `got` another."""
        if not condition:
            raise UserError(f"optimizer {type(self).__name__}: needs {needs}, got {got}")

    def rule(self, lr: float, w: Array, g: Array, *slots: Array) -> None:
        """Update the parameters `w` in place by their gradients `g`, and `slots`, in the order of the class's names.

        All are flat and of one length: any part of the arena, so the rule must treat each element alone. g is the
        gradient of the mean loss over the global batch; the caller does not need it any more.
        """
        raise NotImplementedError

    def open(self, arena: Arena, kernels: Kernels, add: Callable[[np.ndarray], None] | None = None) -> Optimizer:
        """Begin anew for `arena`, with arrays of zeros. `add(array)` sums one over all ranks, in place. Returns itself.

        Raises UserError for a slot whose name a checkpoint has for something else, and for rates of no layer.
        """
        if taken := {"parameters", "state", "frozen"} & set(self.slots):
            raise UserError(
                f"optimizer {type(self).__name__}: a slot cannot be called {taken.pop()}, a checkpoint has one"
            )
        self.arena, self.kernels, self._add, self.steps = arena, kernels, add, 0
        self.arrays: dict[str, Array] = {name: kernels.xp.zeros_like(arena.parameters) for name in self.slots}
        self._factors = factors(arena, self.rates)
        self._kept: dict[int, tuple[int, slice]] | None = None  # start of a kept part → (its place in the arrays, it)
        return self

    def description(self) -> str:
        """Its kind and its numbers, in one line: what all ranks must have alike."""
        numbers = {key: value for key, value in vars(self).items() if isinstance(value, int | float | str)}
        return f"optimizer {type(self).__name__} {numbers}" + (f" rates {dict(self.rates)}" if self.rates else "")

    def update(self, parts: Iterable[slice], lr: float | None = None) -> None:
        """Apply the rule to `parts` of the arena, buckets' or this rank's own, with `lr` or the attribute."""
        rate = self.lr if lr is None else lr
        for part in parts:
            behind = 0  # how far the part lies behind its place in the arrays
            if self._kept is not None and part.stop > part.start:
                behind = part.start - self._kept[part.start][0]
            for start, stop, factor in self._factors or [(part.start, part.stop, 1.0)]:
                own = slice(max(start, part.start), min(stop, part.stop))
                if own.start < own.stop:
                    slots = (array[own.start - behind : own.stop - behind] for array in self.arrays.values())
                    self.rule(rate * factor, self.arena.parameters[own], self.arena.gradients[own], *slots)

    def keep(self, parts: Sequence[slice] | None) -> None:
        """Keep the arrays of `parts` of the arena only, the rank's own, or all of them (None) from here on.

        Collective where parts were kept before: the ranks then put theirs together first.
        """
        if parts is None and self._kept is None:
            return
        whole = {name: self.kernels.xp.asarray(array) for name, array in self.whole().items()}
        if parts is None:
            self.arrays, self._kept = whole, None
            return
        self._kept, end = {}, 0
        for part in parts:
            if part.stop > part.start:
                self._kept[part.start] = end, part
                end += part.stop - part.start
        self.arrays = {
            name: self.kernels.xp.concatenate([array[part] for part in parts]) for name, array in whole.items()
        }

    def whole(self) -> dict[str, np.ndarray]:
        """The arrays for all parameters, on the host. Collective where ranks keep their own parts."""
        found = {}
        for name, array in self.arrays.items():
            found[name] = to_host(array)
            if self._kept is not None:
                own, found[name] = found[name], np.zeros(len(self.arena.parameters), array.dtype)
                for start, part in self._kept.values():
                    found[name][part] = own[start : start + part.stop - part.start]
                if self._add is not None:
                    self._add(found[name])  # each element is one rank's and 0 elsewhere, so the sum is exact
        return found

    def load(self, arrays: Mapping[str, np.ndarray], steps: int) -> None:
        """Go on after `steps` iterations, with the `arrays` that `whole` gave then."""
        self.steps = steps
        for name, array in self.arrays.items():
            array[...] = self.kernels.xp.asarray(arrays[name])


def factors(arena: Arena, rates: Mapping[str, float]) -> list[tuple[int, int, float]]:
    """The runs (first element, one behind the last, factor) of the arena whose tensors have one factor; none without.

    Raises UserError for a factor below 0 and for a name that no layer or tensor which learns has.
    """
    for name, factor in rates.items():
        if not (math.isfinite(factor) and factor >= 0):
            raise UserError(f"rates: the factor of {name} must be a finite number ≥ 0, got {factor}")
        if not any(_called(tensor, name) for tensor in arena.places):
            known = ", ".join(arena.names)
            raise UserError(f"rates: no layer or tensor that learns is called {name!r}; layers are {known}")
    if not rates:
        return []
    runs: list[tuple[int, int, float]] = []
    places = sorted((start, name) for name, (start, _) in arena.places.items())
    for (start, tensor), (end, _) in zip(places, [*places[1:], (len(arena.parameters), "")], strict=True):
        factor = [1.0, *(factor for name, factor in rates.items() if _called(tensor, name))][-1]
        if runs and runs[-1][2] == factor:
            start = runs.pop()[0]
        runs.append((start, end, factor))
    return runs


def _called(tensor: str, pattern: str) -> bool:
    """Whether `tensor`, "layer.name", or its layer matches `pattern`."""
    return fnmatchcase(tensor, pattern) or fnmatchcase(tensor.rpartition(".")[0], pattern)


def rates_from_text(text: str) -> dict[str, float]:
    """The rates in NAME=FACTOR,NAME=FACTOR,…. Raises UserError for anything else."""
    found = {}
    for part in text.split(","):
        name, equals, factor = part.rpartition("=")
        try:
            found[name.strip()] = float(factor)
        except ValueError:
            equals = ""
        if not equals or not name.strip():
            raise UserError(f"--rates {text}: {part!r} is not of the form NAME=FACTOR, as in stage1/*=0.1,fc=10")
    return found


OPTIMIZERS: dict[str, type[Optimizer]] = {}


def optimizer(name: str) -> Callable[[type[Optimizer]], type[Optimizer]]:
    """Decorator that registers an optimiser's class under `name`, for `--optimizer`.

    Raises UserError if another optimiser has that name.
    """

    def register(kind: type[Optimizer]) -> type[Optimizer]:
        check_free("optimizer", name, kind, OPTIMIZERS)
        OPTIMIZERS[name] = kind
        return kind

    return register


def make_optimizer(spec: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Optimizer:
    """The optimiser that `spec` stands for: NAME or NAME:KEY=VALUE,…, where the keys are numbers of its own.

    `given` are the options that all optimisers share (lr, momentum, …), of which each takes those that it knows. Raises
    UserError for an unknown name or key, and for an option it does not know that differs from `defaults`.
    """
    name, _, rest = spec.partition(":")
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS)
    kind = OPTIMIZERS[name]
    takes = set(inspect.signature(kind).parameters)
    for key, value in given.items():
        if key not in takes and value != defaults[key]:
            raise UserError(f"--optimizer {name} takes no --{key.replace('_', '-')}")
    where = f"--optimizer {spec}"
    own = assignments(rest, where, (), tuple(sorted(takes - set(given))))
    try:
        numbers = {key: float(text) for key, text in own.items()}
    except ValueError as error:
        raise UserError(f"{where}: {error}; write numbers") from None
    return kind(**{key: value for key, value in given.items() if key in takes}, **numbers)
