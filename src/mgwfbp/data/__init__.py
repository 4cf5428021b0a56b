"""Data sets and how they are shared out to ranks."""

from mgwfbp.data.datasets import DATASETS, Dataset, load
from mgwfbp.data.sharding import Share, shares, slice_of_rank

__all__ = ["DATASETS", "Dataset", "Share", "load", "shares", "slice_of_rank"]
