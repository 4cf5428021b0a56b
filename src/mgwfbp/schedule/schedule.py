"""What a schedule is: the cuts between buckets, and how the buckets' messages travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from mgwfbp.errors import UserError


@dataclass(frozen=True)
class Bucket:
    """Layers first..last (inclusive, gradient-ready order) sent as one message."""

    first: int
    last: int

    def label(self, names: Sequence[str]) -> str:
        """The bucket in words, by the `names` of all layers: "conv2" or "ip1…conv2"."""
        return names[self.first] if self.first == self.last else f"{names[self.first]}…{names[self.last]}"


# How the messages of a schedule travel, and what waits for them.
ALL_REDUCE = "all-reduce"  # all of them end before the iteration does
PIPELINED = "pipelined"  # a layer's next forward waits for its own bucket
SHARDED = "sharded"  # reduce-scatter behind backward, all-gather of parameters behind the next forward


@dataclass(frozen=True)
class Schedule:
    """The buckets of one iteration in send order, and the name of the policy that cut them.

    `mode` is ALL_REDUCE, PIPELINED or SHARDED. Sharded buckets are reduce-scattered in the order given and gathered in
    the opposite one.
    """

    policy: str
    buckets: tuple[Bucket, ...]
    mode: str = ALL_REDUCE

    @property
    def runs_into_forward(self) -> bool:
        """Whether messages may still be on their way when the next iteration's forward begins."""
        return self.mode != ALL_REDUCE

    def check(self, layers: int) -> None:
        """Raise UserError unless the buckets cover layers 0..layers-1, each once."""
        covered = 0
        for bucket in sorted(self.buckets, key=lambda bucket: bucket.first):
            if bucket.first != covered or bucket.last < bucket.first:
                break
            covered = bucket.last + 1
        if covered != layers:
            cuts = [(bucket.first, bucket.last) for bucket in self.buckets]
            raise UserError(
                f"policy {self.policy}: the buckets {cuts} do not cover the layers 0..{layers - 1} once each"
            )


def schedule_from_cuts(policy: str, starts: list[int], layers: int, mode: str = ALL_REDUCE) -> Schedule:
    """The schedule whose buckets begin at the layers `starts` (ascending, the first is 0) and cover `layers` layers.

    Raises UserError for other cuts.
    """
    if not starts or starts[0] != 0 or any(b <= a for a, b in pairwise([*starts, layers])):
        raise UserError(f"schedule {policy}: cuts must begin with 0 and ascend below {layers}, found {starts}")
    ends = [*starts[1:], layers]
    return Schedule(policy, tuple(Bucket(first, end - 1) for first, end in zip(starts, ends, strict=True)), mode)


def unmerged(layers: int) -> Schedule:
    """One message a layer (WFBP), for `layers` layers."""
    return schedule_from_cuts("wfbp", list(range(layers)), layers)
