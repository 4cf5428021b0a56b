"""Data sets and how they are shared out to ranks."""

from mgwfbp.data.augment import augment
from mgwfbp.data.datasets import DATASETS, Dataset, load
from mgwfbp.data.sharding import Share, shares, slice_of_rank

__all__ = ["DATASETS", "Dataset", "Share", "augment", "load", "shares", "slice_of_rank"]
