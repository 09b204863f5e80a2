"""The base of all data sets, and their registry."""

from .base_dataset import DatasetBase, Datum
from .build import DATASET_REGISTRY, build_dataset

__all__ = ["DATASET_REGISTRY", "DatasetBase", "Datum", "build_dataset"]
