"""Metrics of a batch."""

from .accuracy import compute_accuracy

__all__ = ["compute_accuracy"]
