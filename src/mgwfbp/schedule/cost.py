"""What an all-reduce costs: seconds as a function of message bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mgwfbp.errors import UserError
from mgwfbp.schedule.fit import AffineFit, fit_affine, monotone

# bytes -> seconds; non-negative and monotone: more bytes never take less time.
Cost = Callable[[float], float]


@dataclass(frozen=True)
class AffineCost:
    """The paper's cost: t(M) = a + b·M, `a` seconds a message, `b` seconds a byte (MG-WFBP, eq. 2).

    A message of no bytes still costs `a`. `halves`, if they are known, are what a reduce-scatter and an all-gather of M
    bytes cost, of which an all-reduce can be made. Raises UserError if `a` or `b` is negative or not finite.
    """

    a: float
    b: float
    halves: tuple[AffineCost, AffineCost] | None = None
    halved: bool = False  # whether it is that of messages with two bytes for each four

    def __post_init__(self) -> None:
        for name, value in (("a", self.a), ("b", self.b)):
            if not math.isfinite(value) or value < 0:
                raise UserError(f"all-reduce cost: {name} must be a finite number ≥ 0, found {value}")

    def __call__(self, nbytes: float) -> float:
        """Seconds for a message of `nbytes` (a number or an array of them)."""
        return self.a + self.b * nbytes


@dataclass(frozen=True)
class TableCost:
    """A measured cost: linear between the measured sizes, made monotone by isotonic regression.

    `nbytes` strictly ascending, `seconds` of the same length; at least two points. Below the first size it falls to
    the start-up of the affine fit, or stays if that is larger; above the last it grows with the slope of the table's
    last factor of four in size. `halves` as in AffineCost. Raises UserError if the sizes do not ascend, or a value is
    negative or not finite.
    """

    nbytes: tuple[float, ...]
    seconds: tuple[float, ...]
    halves: tuple[TableCost, TableCost] | None = None
    halved: bool = False  # as in AffineCost

    def __post_init__(self) -> None:
        if len(self.nbytes) != len(self.seconds) or len(self.nbytes) < 2:
            raise UserError(
                f"all-reduce table: needs two or more points and as many seconds as sizes, "
                f"found {len(self.nbytes)} sizes and {len(self.seconds)} seconds"
            )
        for name, values in (("nbytes", self.nbytes), ("seconds", self.seconds)):
            bad = [value for value in values if not math.isfinite(value) or value < 0]
            if bad:
                raise UserError(f"all-reduce table: {name} must be finite numbers ≥ 0, found {bad[0]}")
        if any(after <= before for before, after in zip(self.nbytes, self.nbytes[1:], strict=False)):
            raise UserError("all-reduce table: nbytes must ascend, each size once")
        object.__setattr__(self, "seconds", tuple(monotone(self.seconds).tolist()))

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray, float]:
        nbytes, seconds = np.array(self.nbytes, float), np.array(self.seconds, float)
        # A single pair of neighbours would let one noisy point decide what every larger message costs.
        before = max(0, min(len(nbytes) - 2, int(np.searchsorted(nbytes, nbytes[-1] / 4, "right")) - 1))
        slope = (seconds[-1] - seconds[before]) / (nbytes[-1] - nbytes[before])
        if nbytes[0] > 0:
            # A table may begin at 4 MiB: were the first cost that of every smaller message, all schedules would merge.
            start = min(self.affine.a, seconds[0])
            nbytes, seconds = np.append(0.0, nbytes), np.append(start, seconds)
        return nbytes, seconds, float(slope)

    @cached_property
    def affine(self) -> AffineFit:
        """The affine fit through the table's points, weighted so that each counts by its relative error."""
        return fit_affine(self.nbytes, self.seconds, relative=True)

    def __call__(self, nbytes: float) -> float:
        """Seconds for a message of `nbytes` (a number or an array of them)."""
        sizes, seconds, slope = self._arrays
        return np.interp(nbytes, sizes, seconds) + slope * np.maximum(0.0, np.subtract(nbytes, sizes[-1]))


def halves(cost: Cost) -> tuple[Cost, Cost]:
    """What a reduce-scatter and an all-gather of M bytes cost: as known, else half of an all-reduce each."""
    known = getattr(cost, "halves", None)
    if known is not None:
        return known
    if isinstance(cost, AffineCost):
        half: Cost = AffineCost(cost.a / 2, cost.b / 2)
    elif isinstance(cost, TableCost):
        half = TableCost(cost.nbytes, tuple(seconds / 2 for seconds in cost.seconds))
    else:
        half = lambda nbytes: cost(nbytes) / 2  # noqa: E731
    return half, half


def with_half_the_bytes(cost: AffineCost | TableCost) -> AffineCost | TableCost:
    """What messages cost that send two bytes for each four: all-reduces and reduce-scatters; all-gathers send all.

    A cost that is one of such messages already stays.
    """
    if cost.halved:
        return cost
    scatter, gather = halves(cost)
    return replace(_half(cost), halves=(_half(scatter), gather), halved=True)  # type: ignore[arg-type]


def _half(cost: AffineCost | TableCost) -> AffineCost | TableCost:
    if isinstance(cost, AffineCost):
        return AffineCost(cost.a, cost.b / 2)
    return TableCost(tuple(2 * nbytes for nbytes in cost.nbytes), cost.seconds)


def startup_s(cost: Cost) -> float:
    """The start-up time `a` of any cost: what the paper's Algorithm 1 compares gaps with.

    For a table it is the intercept of its affine fit, for any other callable the cost of no bytes.
    """
    if isinstance(cost, TableCost):
        return cost.affine.a
    return float(cost(0.0))


def costs(cost: Cost, sizes: Sequence[float] | np.ndarray) -> np.ndarray:
    """`cost` at each of `sizes` (bytes), as float64 seconds. Ours take arrays; a user's callable need not."""
    if isinstance(cost, AffineCost | TableCost):
        return np.asarray(cost(np.asarray(sizes, float)))  # type: ignore[arg-type]
    return np.fromiter((cost(float(size)) for size in sizes), float, len(sizes))


def message_times(cost: Cost, prefix: Sequence[int]) -> np.ndarray:
    """[i, j] is the time of one message with the layers [i, j), in seconds; ∞ where i ≥ j. `prefix` is S of the DP."""
    sizes, count = np.array(prefix, float), len(prefix)
    takes = costs(cost, np.maximum(0.0, sizes[None, :] - sizes[:, None]).ravel()).reshape(count, count)
    return np.where(np.arange(count)[:, None] < np.arange(count), takes, np.inf)
