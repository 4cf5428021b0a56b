"""Who owns what of a bucket when the update is shared out: equal contiguous parts, one a rank."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise


def chunks(part: slice, most: int) -> Iterator[slice]:
    """`part` of a flat array in pieces of at most `most` elements, which is what one message may have."""
    for start in range(part.start, part.stop, most):
        yield slice(start, min(start + most, part.stop))


def bounds(elements: int, ranks: int) -> list[int]:
    """Where each rank's part of `elements` begins, and the end: `ranks` + 1 numbers; sizes differ by one at most."""
    return [elements * rank // ranks for rank in range(ranks + 1)]


def places(elements: int, ranks: int) -> tuple[list[int], list[int]]:
    """How long each rank's part of `elements` is, and where it begins: what MPI's calls for uneven parts take."""
    edges = bounds(elements, ranks)
    return [after - before for before, after in pairwise(edges)], edges[:-1]


def part_of(elements: int, rank: int, ranks: int) -> slice:
    """The part of `elements` that is `rank`'s."""
    edges = bounds(elements, ranks)
    return slice(edges[rank], edges[rank + 1])


def owned(part: slice, rank: int, ranks: int, most: int) -> list[slice]:
    """What `rank` owns of `part`: a piece of each of its chunks."""
    pieces = []
    for chunk in chunks(part, most):
        part = part_of(chunk.stop - chunk.start, rank, ranks)
        pieces.append(slice(chunk.start + part.start, chunk.start + part.stop))
    return pieces
