"""Datasets by name: those bundled with scikit-learn, and stored ``.npz`` files of a folder. No network.

Rows are samples. Pixels become float32 in [0, 1], counts and measurements float32 as they are, and 0/1 data
stays uint8. Sparse files stay CSR.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import sparse

from cofactor.types import Array, CofactorError, Data, DataError

VARIABLE = "COFACTOR_DATA"
"""The environment variable that names the folder of the stored datasets."""

Order = Literal["C", "F"]


@dataclass(frozen=True)
class Dataset:
    """A matrix X (n x m) with feature names (m), labels (n) and picture shape, each None where unknown."""

    X: Data
    feature_names: Array | None
    labels: Array | None
    name: str
    image_shape: tuple[int, ...] | None = None
    order: Order = "C"

    def pictures(self, F: Array) -> Array:
        """Reshape rows of X or of a factor (r x m) to pictures (r x height x width; channels first)."""
        if self.image_shape is None:
            raise DataError(f"Expected a dataset of pictures. Found {self.name!r}, which has no image_shape.")
        return np.reshape(F, (-1, *self.image_shape), order=self.order)


@dataclass(frozen=True)
class _Stored:
    """Where a dataset lies in its file: keys of the arrays, and what has to be done to X."""

    file: str
    array: str = "X"
    features: str | None = None
    labels: str | None = None
    label_names: str | None = None
    image_shape: tuple[int, ...] | None = None
    order: Order = "C"
    scale: float | None = 1.0  # None: 0/1 data, left as stored
    transposed: bool = False


_BOOLEAN = ("americas_small", "advertisement", "customer", "firewall1", "dna", "tic_tac_toe", "apj")
_PIXEL = 1.0 / 255.0

_STORED: dict[str, _Stored] = {
    "mnist": _Stored("mnist", labels="y", image_shape=(28, 28), scale=_PIXEL),
    "fashion_mnist": _Stored("fashion_mnist", labels="y", image_shape=(28, 28), scale=_PIXEL),
    "cifar10_test2500": _Stored("cifar10_test2500", labels="y", image_shape=(3, 32, 32), scale=_PIXEL),
    "yaleb_32x32": _Stored("yaleb_32x32", labels="y", image_shape=(32, 32), order="F", scale=_PIXEL),
    "cbcl_faces": _Stored("cbcl_faces", "pixels", image_shape=(19, 19), order="F", scale=_PIXEL),
    # as other papers found it: a photographic negative without zeros
    "cbcl_faces_negative": _Stored("cbcl_faces", image_shape=(19, 19), order="F"),
    "movielens_latest_small": _Stored("movielens_latest_small", features="movie_id"),
    "tdt2_top30": _Stored("tdt2_top30", labels="y"),
    "newsgroups20": _Stored("newsgroups20", features="terms", labels="y", label_names="class_names"),
    "bbc_news": _Stored("bbc_news", features="terms", labels="y", label_names="class_names"),
    "news_3windows": _Stored("news_3windows", features="terms", labels="window", label_names="window_names"),
    "gene_all_aml": _Stored("gene_all_aml", features="genes", labels="samples", transposed=True),
    "tcga_breast_mrna": _Stored("tcga_breast_subset", "mrna", "genes", "subtype"),
    "tcga_breast_mirna": _Stored("tcga_breast_subset", "mirna", "mirnas", "subtype"),
    "scrna_hnsc_gse103322": _Stored("scrna_hnsc_gse103322", features="genes", labels="cell_type"),
    "scrna_pbmc68k_reduced": _Stored("scrna_pbmc68k_reduced", features="genes", labels="cell_type"),
    "adult_onehot": _Stored("adult_onehot", features="feature_names", scale=None),
    "mushroom": _Stored("mushroom", scale=None),
    **{name: _Stored("bmf_benchmarks", name, scale=None) for name in _BOOLEAN},
}

_BUNDLED = ("digits", "breast_cancer", "wine", "iris")


def names() -> list[str]:
    """Return every name that :func:`load` knows, the bundled ones (which need no folder) first."""
    return [*_BUNDLED, *_STORED]


def file_of(name: str) -> str | None:
    """Return the name of the file that a dataset lies in; None for those that are bundled.

    >>> file_of("tcga_breast_mrna"), file_of("digits")
    ('tcga_breast_subset.npz', None)
    """
    return f"{_STORED[name].file}.npz" if name in _STORED else None


def load(name: str, folder: str | os.PathLike[str] | None = None) -> Dataset:
    """Return a dataset by name, from scikit-learn or from ``folder`` (default: ``$COFACTOR_DATA``).

    >>> load("iris").X.shape
    (150, 4)
    """
    if name == "digits":
        return digits()
    if name in _BUNDLED:
        return _bundled(name)
    if name in _STORED:
        return _stored(name, _STORED[name], folder)
    near = get_close_matches(name, names(), n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Known names: {', '.join(names())}."
    raise CofactorError(f"Expected the name of a dataset. Found {name!r}. {hint}")


def digits() -> Dataset:
    """Return scikit-learn's 1797 handwritten digits, X = grey levels / 16 in [0, 1] (8 x 8 pictures)."""
    return _bundled("digits", scale=1.0 / 16.0, image_shape=(8, 8))


def _bundled(name: str, *, scale: float = 1.0, image_shape: tuple[int, ...] | None = None) -> Dataset:
    from sklearn import datasets as bundled  # imports pandas: a second of every command that reads no such data

    raw: Any = getattr(bundled, f"load_{name}")()
    X = (raw.data * scale).astype(np.float32)
    return Dataset(X, np.asarray(raw.feature_names), raw.target, name, image_shape)


def _stored(name: str, source: _Stored, folder: str | os.PathLike[str] | None) -> Dataset:
    path = _path(name, source.file, folder)
    with np.load(path) as file:
        X = sparse.load_npz(path) if "indptr" in file.files else _key(file, source.array, path)
        features = None if source.features is None else _key(file, source.features, path).astype(str)
        labels = None if source.labels is None else _key(file, source.labels, path)
        if source.label_names is not None:
            labels = _key(file, source.label_names, path)[labels]
    if source.scale is not None:
        X = X.astype(np.float32) * np.float32(source.scale)
    X = np.ascontiguousarray(X.T) if source.transposed else X
    return Dataset(X, features, labels, name, source.image_shape, source.order)


def _key(file: Any, key: str, path: Path) -> Array:
    if key not in file.files:
        raise DataError(f"Expected an array {key!r} in {path}. Found {sorted(file.files)}. Is it another file?")
    return file[key]


def _path(name: str, file: str, folder: str | os.PathLike[str] | None) -> Path:
    where = folder or os.environ.get(VARIABLE)
    if not where:
        raise DataError(
            f"Dataset {name!r} lies in a folder: expected the argument folder or the environment variable "
            f"{VARIABLE}. Found neither. Set {VARIABLE} to the folder of {file}.npz, or load one of the "
            f"bundled datasets: {', '.join(_BUNDLED)}."
        )
    path = Path(where) / f"{file}.npz"
    if not path.is_file():
        present = sorted(p.name for p in Path(where).glob("*.npz"))
        raise DataError(
            f"Dataset {name!r} expects the file {path}. Found {', '.join(present) or 'no .npz file'} there. "
            f"Put it there, or set {VARIABLE} to the folder that has it."
        )
    return path
