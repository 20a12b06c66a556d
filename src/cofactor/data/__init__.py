"""Data for federations: how rows are spread over clients, planted matrices, stored and bundled datasets."""

from cofactor.data import binarize, datasets, partition, synthetic

__all__ = ["binarize", "datasets", "partition", "synthetic"]
