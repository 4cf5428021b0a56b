"""Who owns what of a bucket when the update is shared out: equal contiguous parts, one a rank."""

from __future__ import annotations

from collections.abc import Iterator


def chunks(part: slice, most: int) -> Iterator[slice]:
    """`part` of a flat array in pieces of at most `most` elements, which is what one message may have."""
    for start in range(part.start, part.stop, most):
        yield slice(start, min(start + most, part.stop))


def bounds(elements: int, ranks: int) -> list[int]:
    """Where each rank's part of `elements` begins, and the end: `ranks` + 1 numbers; sizes differ by one at most."""
    return [elements * rank // ranks for rank in range(ranks + 1)]


def owned(part: slice, rank: int, ranks: int, most: int) -> list[slice]:
    """What `rank` owns of `part`: a piece of each of its chunks."""
    pieces = []
    for chunk in chunks(part, most):
        edges = bounds(chunk.stop - chunk.start, ranks)
        pieces.append(slice(chunk.start + edges[rank], chunk.start + edges[rank + 1]))
    return pieces
