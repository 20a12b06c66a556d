"""Data for federations: files, features matched by name, rows spread over clients, planted and bundled matrices."""

from cofactor.data import binarize, datasets, harmonise, load, partition, synthetic

__all__ = ["binarize", "datasets", "harmonise", "load", "partition", "synthetic"]
