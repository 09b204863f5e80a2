"""Data sets, transforms, samplers and loaders."""

from .data_manager import DataManager, DatasetWrapper

__all__ = ["DataManager", "DatasetWrapper"]
