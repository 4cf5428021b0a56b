"""Data sets and how they are shared out to ranks."""

from mgwfbp.data.augment import augment
from mgwfbp.data.datasets import DATASETS, Dataset, load
from mgwfbp.data.folder import ImageFolder, image_folder
from mgwfbp.data.sharding import Share, shares, slice_of_rank

Data = Dataset | ImageFolder

__all__ = [
    "DATASETS",
    "Data",
    "Dataset",
    "ImageFolder",
    "Share",
    "augment",
    "image_folder",
    "load",
    "shares",
    "slice_of_rank",
]
