"""Data sets, and how they are shared out to ranks, batch by batch."""

from mgwfbp.data.augment import augment
from mgwfbp.data.batches import Batch, batches, total_iterations
from mgwfbp.data.data import DATASETS, Data, Dataset, Source, dataset, load
from mgwfbp.data.folder import ImageFolder
from mgwfbp.data.inputs import ENDINGS, Inputs, inputs_from_dict
from mgwfbp.data.named import named_folder
from mgwfbp.data.shares import Share, shares, slice_of_rank

__all__ = [
    "DATASETS",
    "ENDINGS",
    "Batch",
    "Data",
    "Dataset",
    "ImageFolder",
    "Inputs",
    "Share",
    "Source",
    "augment",
    "batches",
    "dataset",
    "inputs_from_dict",
    "load",
    "named_folder",
    "shares",
    "slice_of_rank",
    "total_iterations",
]
