"""Does the run still do what the plan says? If it does not for a while, it is time to measure and plan again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import median

from mgwfbp.errors import UserError
from mgwfbp.schedule.measured import IterationTimes


def check_replan(when: str) -> int | None:
    """The number of iterations in `--replan N`; None for auto and never. Raises UserError for anything else."""
    if when in ("auto", "never"):
        return None
    if not when.isdecimal() or not 1 <= int(when) < 10**9:
        raise UserError(f"--replan {when}: must be auto, never or a number of iterations")
    return int(when)


WINDOW = 10  # iterations whose median is compared with the prediction
SHARE = 0.25  # a difference that matters: |measured / predicted − 1|
PATIENCE = 3  # so many windows in a row; doubled after each new plan, since some machines cannot be predicted better


class Watch:
    """Counts planned iterations and says when to plan anew: `when` is `auto`, `never` or a number of iterations.

    Raises UserError for anything else.
    """

    def __init__(self, max_over_ranks: Callable[[list[float]], list[float]], when: str) -> None:
        self.max_over_ranks, self.when = max_over_ranks, when
        self.every = check_replan(when)
        self.recent: deque[IterationTimes] = deque(maxlen=WINDOW)
        self.patience, self._windows, self._iterations = PATIENCE, 0, 0
        self.measured_s, self._looked = 0.0, -1

    def add(self, times: IterationTimes) -> None:
        """A full iteration of the plan is over."""
        self.recent.append(times)
        self._iterations += 1

    def plan_again(self, predicted_s: float) -> bool:
        """Whether to plan anew before the next iteration, the same on all ranks; `measured_s` is then what was seen.

        Collective, once in WINDOW iterations.
        """
        if self.when == "never" or self._iterations == 0:
            return False
        if self.every is not None:
            if self._iterations % self.every:
                return False
            self._look(predicted_s)
            return True
        if self._iterations % WINDOW or self._iterations == self._looked:  # a short batch does not count
            return False
        self._looked = self._iterations
        self._windows = self._windows + 1 if abs(self._look(predicted_s) - 1) > SHARE else 0
        if self._windows < self.patience:
            return False
        self.patience *= 2
        return True

    def planned(self) -> None:
        """There is a new plan: count from here."""
        self._windows, self._iterations, self._looked = 0, 0, -1
        self.recent.clear()

    def _look(self, predicted_s: float) -> float:
        own = median((times.end - times.start) * 1e-9 for times in self.recent)
        (self.measured_s,) = self.max_over_ranks([own])
        return self.measured_s / predicted_s
