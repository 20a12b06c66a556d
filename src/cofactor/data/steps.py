"""Steps of a preparation: what is done with every row before a factorization, each a small object.

A step works row by row once it is settled. What it must know of all rows it learns from sums over clients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from scipy import sparse

from cofactor.data.binarize import threshold
from cofactor.data.changed import changed, floats
from cofactor.data.variable import FLAVOURS, mean_variance, moments, moments_schema, most_variable, present
from cofactor.engines.totals import Sums
from cofactor.local import arrays
from cofactor.local.columns import column_sums
from cofactor.types import Array, CofactorError, Data, DataError, unknown

LEVEL = 100.0  # squares of counts in ten thousand, over many cells, then stay in the range of secure sums
Rows = Any  # in memory: a dense array or a scipy sparse matrix


class Step(Protocol):
    """One step. ``asks`` says whether it needs sums over clients before it can work; ``word`` is its name in texts."""

    word: ClassVar[str]
    asks: ClassVar[bool]

    @property
    def text(self) -> str:
        """The step as it is written on the command line."""
        ...

    def schema(self, n_features: int) -> dict[str, tuple[int, ...]]:
        """Name and shape of the sums."""
        ...

    def answer(self, data: Data) -> dict[str, Array]:
        """Client: the sums of its own rows; zeros for features that it lacks."""
        ...

    def settled(self, sums: Sums) -> Self:
        """Server: the step with all that it needs to know, arrays with one entry for each feature."""
        ...

    def on(self, index: Any) -> Self:
        """Return the step for some of the features."""
        ...

    @property
    def keeps(self) -> Array | None:
        """Of a settled step: which features are left (a mask), None for all."""
        ...

    def apply(self, X: Rows) -> Rows:
        """Client: the rows after the step."""
        ...


@dataclass(frozen=True)
class Rowwise:
    """A step that needs to know nothing of other rows."""

    word: ClassVar[str] = ""
    asks: ClassVar[bool] = False
    keeps: ClassVar[Array | None] = None

    def schema(self, n_features: int) -> dict[str, tuple[int, ...]]:
        """Nothing."""
        return {}

    def answer(self, data: Data) -> dict[str, Array]:
        """Nothing."""
        return {}

    def settled(self, sums: Sums) -> Self:
        """Itself."""
        return self

    def on(self, index: Any) -> Self:
        """Itself."""
        return self


@dataclass(frozen=True)
class LibrarySize(Rowwise):
    """Every row divided by its sum and multiplied by ``target``: ``x_i target / sum(x_i)``; rows of zeros stay."""

    target: float = 1e4
    word: ClassVar[str] = "library"

    def __post_init__(self) -> None:
        if not self.target > 0:
            raise CofactorError(f"library: expected a target above 0, found {self.target}.")

    @property
    def text(self) -> str:
        """As on the command line."""
        return f"library={self.target:g}"

    def apply(self, X: Rows) -> Rows:
        """Scale the rows."""
        X = floats(X)
        with np.errstate(over="ignore"):  # a sum beyond all numbers makes zeros; a warning would tell of the row
            size = np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()
        least = self.target / float(np.finfo(X.dtype).max)  # shorter rows count as zeros: finite ones stay so
        return _times_rows(X, np.divide(self.target, size, out=np.zeros_like(size), where=size > least))


@dataclass(frozen=True)
class Log1p(Rowwise):
    """``log(1 + x)`` of every value."""

    word: ClassVar[str] = "log1p"
    text: ClassVar[str] = "log1p"

    def apply(self, X: Rows) -> Rows:
        """Take logarithms."""
        return np.log1p(floats(X))


@dataclass(frozen=True)
class Binarize(Rowwise):
    """1 where a value is above ``above``, else 0."""

    above: float = 0.0
    word: ClassVar[str] = "binarize"

    def __post_init__(self) -> None:
        if not self.above >= 0:
            raise CofactorError(f"binarize: expected a value >= 0 to be above, found {self.above}.")

    @property
    def text(self) -> str:
        """As on the command line."""
        return f"binarize={self.above:g}"

    def apply(self, X: Rows) -> Rows:
        """Compare."""
        return threshold(X, self.above, strict=True).astype(floats(X[:0]).dtype)


@dataclass(frozen=True, eq=False)
class Scale:
    """Every feature divided by its standard deviation over all rows; means stay, so that nothing becomes negative.

    Features that do not vary stay as they are.
    """

    deviations: Array | None = None
    word: ClassVar[str] = "scale"
    text: ClassVar[str] = "scale"
    asks: ClassVar[bool] = True
    keeps: ClassVar[Array | None] = None

    def schema(self, n_features: int) -> dict[str, tuple[int, ...]]:
        """Rows, sums and squares of every feature."""
        return moments_schema(n_features)

    def answer(self, data: Data) -> dict[str, Array]:
        """Its own sums."""
        return moments(data)

    def settled(self, sums: Sums) -> Scale:
        """Know the deviations (of a sample: divided by n - 1)."""
        _, variance = mean_variance(sums)
        return Scale(np.sqrt(np.where(variance > 0, variance, 1.0)))

    def on(self, index: Any) -> Scale:
        """Those of some features."""
        return Scale(_known(self.deviations, self.word)[index])

    def apply(self, X: Rows) -> Rows:
        """Divide."""
        return _times_columns(floats(X), 1 / _known(self.deviations, self.word))


@dataclass(frozen=True, eq=False)
class TfIdf:
    """Term frequency times inverse document frequency, rows at norm 1.

    ``x_it (log((1 + n) / (1 + n_t)) + 1)`` with n_t the number of rows that have feature t: scikit-learn's default.
    """

    weights: Array | None = None
    word: ClassVar[str] = "tfidf"
    text: ClassVar[str] = "tfidf"
    asks: ClassVar[bool] = True
    keeps: ClassVar[Array | None] = None

    def schema(self, n_features: int) -> dict[str, tuple[int, ...]]:
        """Rows, and those that have a feature."""
        return {"rows": (n_features,), "having": (n_features,)}

    def answer(self, data: Data) -> dict[str, Array]:
        """Its own counts."""
        having, _ = column_sums(changed(data, lambda X: (X > 0).astype(np.float64)))
        return {"rows": present(data), "having": having}

    def settled(self, sums: Sums) -> TfIdf:
        """Know the weights."""
        return TfIdf(np.log((1 + sums["rows"]) / (1 + sums["having"])) + 1)

    def on(self, index: Any) -> TfIdf:
        """Those of some features."""
        return TfIdf(_known(self.weights, self.word)[index])

    def apply(self, X: Rows) -> Rows:
        """Weigh, and bring rows to norm 1."""
        X = _times_columns(floats(X), _known(self.weights, self.word))
        norms = np.sqrt(arrays.row_squares(X))
        return _times_rows(X, np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0))


@dataclass(frozen=True, eq=False)
class HighlyVariable:
    """Keep the ``top`` features that vary most for their mean; ``seurat`` and ``cell_ranger`` are scanpy's flavours.

    Both want logarithms (:class:`Log1p` before, or data that are so already); ``bins`` are the groups by mean of
    ``seurat``.
    """

    top: int = 2000
    flavour: str = "seurat"
    bins: int = 20
    keeps: Array | None = None
    word: ClassVar[str] = "hvg"
    asks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.flavour not in FLAVOURS:
            raise unknown("flavour", self.flavour, FLAVOURS)
        for name, value in (("top", self.top), ("bins", self.bins)):
            if not (isinstance(value, int | np.integer) and value >= 1):
                raise CofactorError(f"hvg: expected {name} as a whole number of at least 1, found {value!r}.")

    @property
    def text(self) -> str:
        """As on the command line."""
        return f"hvg={self.top}" + (f":{self.flavour}" if self.flavour != "seurat" else "")

    def schema(self, n_features: int) -> dict[str, tuple[int, ...]]:
        """Rows, sums and squares of every feature."""
        return moments_schema(n_features)

    def answer(self, data: Data) -> dict[str, Array]:
        """Its own sums; ``seurat`` takes logarithms back first."""
        found = moments(changed(data, _raised) if self.flavour == "seurat" else data)
        if not np.isfinite(found["squares"]).all():
            raise DataError("hvg: expected logarithms, found values that are too large for them; put log1p before hvg.")
        return found

    def settled(self, sums: Sums) -> HighlyVariable:
        """Know which features to keep."""
        level = LEVEL if self.flavour == "seurat" else 1.0
        mean, variance = (found * level**power for power, found in enumerate(mean_variance(sums), start=1))
        return replace(self, keeps=most_variable(mean, variance, self.top, flavour=self.flavour, bins=self.bins))

    def on(self, index: Any) -> HighlyVariable:
        """Those of some features."""
        return replace(self, keeps=_known(self.keeps, self.word)[index])

    def apply(self, X: Rows) -> Rows:
        """Keep columns."""
        return X[:, _known(self.keeps, self.word)]


KNOWN: dict[str, type[Any]] = {kind.word: kind for kind in (LibrarySize, Log1p, TfIdf, Scale, HighlyVariable, Binarize)}
"""Every step by its word."""


def _raised(X: Rows) -> Rows:
    with np.errstate(over="ignore"):
        return np.expm1(X.astype(np.float64)) / LEVEL


def _known(array: Array | None, word: str) -> Array:
    if array is None:
        raise CofactorError(f"{word}: expected a step that was settled on data, found one that was not.")
    return array


def _times_rows(X: Rows, factors: Array) -> Rows:
    if not sparse.issparse(X):
        return X * factors[:, None].astype(X.dtype)
    out = X.tocsr(copy=True)
    out.data *= np.repeat(factors.astype(X.dtype), np.diff(out.indptr))
    return out


def _times_columns(X: Rows, factors: Array) -> Rows:
    if not sparse.issparse(X):
        return X * factors.astype(X.dtype)
    out = X.tocsr(copy=True)
    out.data *= factors.astype(X.dtype)[out.indices]
    return out
