"""Markers: which features go with a component more than with the others, from sums over clients.

The largest weights of a component are often those of features that are large everywhere. The score that tells programs
apart is that of cNMF (Kotliar et al. 2019): ordinary least squares of every feature, at mean 0 and variance 1, on the
codes of all components together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cofactor.engines.totals import Sums
from cofactor.files import tsv
from cofactor.local import arrays
from cofactor.local.columns import column_sums, columns_of
from cofactor.local.weighted import Weighted, completed
from cofactor.types import Array, CofactorError, Data

SINGULAR = 1e-10
"""Directions of the codes below this share of the largest are none."""
CONSTANT = 1e-10
"""A feature whose variance is below this share of its mean square does not vary."""
SCORES = "marker_scores"
"""The array that holds scores in a file."""
MARKED = ("real", "gaps")
"""Kinds of data that have markers."""
PREFIX = "markers "
"""Begins the name of every array that is sent for markers."""


Refit = Callable[[Data, Array], Array]
"""(rows, factor) -> the codes (n x k) that belong to them: the ``refit`` of a method."""


@dataclass(frozen=True, eq=False)
class Regressed:
    """The question behind markers: codes against codes, codes against features, and sums of both.

    ``gram = W^T W`` (k x k), ``cross = W^T X`` (k x m), ``codes = W^T 1`` (k), ``sums = X^T 1`` and ``squares``
    (m), ``rows``. Cells that were not observed are those of the model. Where clients lack features, ``groups`` number
    the features by who has them (:func:`cofactor.local.columns.groups`), and what is summed over rows is so for every
    group apart.
    """

    refit: Refit
    factor: Array
    groups: tuple[int, ...] | None = None

    def schema(self, n_features: int) -> dict[str, tuple[int, ...]]:
        """Name and shape of the arrays."""
        k, parts = len(self.factor), 1 if self.groups is None else max(self.groups) + 1
        shapes = {"gram": (parts, k, k), "cross": (k, n_features), "codes": (parts, k)}
        shapes |= {"sums": (n_features,), "squares": (n_features,), "rows": (parts,)}
        return {PREFIX + name: shape for name, shape in shapes.items()}

    def answer(self, data: Data) -> dict[str, Array]:
        """Client: the sums of its own rows."""
        return {PREFIX + name: a for name, a in self.of(data, self.refit(data, self.factor)).items()}

    def of(self, data: Data, codes: Array) -> dict[str, Array]:
        """Client: the sums of rows whose codes are known."""
        W = codes.astype(np.float64)
        data = data.toarray() if isinstance(data, Weighted) else data
        here = self._present(data)
        total, squares = column_sums(data)
        if np.isnan(total).any():  # cells that were not observed
            data = completed(data, codes, self.factor)
            total, squares = column_sums(data)
        return {
            "gram": np.multiply.outer(here, W.T @ W),
            "cross": arrays.times_codes(data, codes).T.astype(np.float64),
            "codes": np.multiply.outer(here, W.sum(axis=0)),
            "sums": total,
            "squares": squares,
            "rows": here * float(len(W)),
        }

    def scores(self, sums: Sums) -> Array:
        """Server: the score of every component and feature (k x m).

        ``beta = (W^T W)^+ W^T Z`` with ``Z = (X - mean) / deviation``, each row times the root mean square of its
        codes, so that scores of components compare: how many deviations a feature rises where the component is as
        strong as it usually is. 0 for a feature that does not vary.
        """
        found = {name.removeprefix(PREFIX): a for name, a in sums.items()}
        out = np.zeros(found["cross"].shape)
        for g, gram in enumerate(found["gram"]):
            part = slice(None) if self.groups is None else np.flatnonzero(np.equal(self.groups, g))
            one = {name: found[name][..., part] for name in ("cross", "sums", "squares")}
            out[:, part] = _regression(gram, found["codes"][g], float(found["rows"][g]), **one)
        return out

    def _present(self, data: Data) -> Array:
        """Say which groups a client has, as 0 and 1."""
        if self.groups is None:
            return np.ones(1)
        return np.isin(np.arange(max(self.groups) + 1), np.asarray(self.groups)[columns_of(data)]).astype(np.float64)


def _regression(gram: Array, codes: Array, rows: float, *, cross: Array, sums: Array, squares: Array) -> Array:
    """Return the scores of features that the same clients have."""
    if rows <= 0:
        return np.zeros_like(cross)
    mean, square = sums / rows, squares / rows
    variance = square - mean**2
    varies = variance > CONSTANT * square
    deviation = np.sqrt(np.where(varies, variance, 1.0))
    strength = np.sqrt(np.diag(gram) / rows)
    level = np.where(strength > 0, strength, 1.0)
    unit = gram / (rows * np.outer(level, level))  # as if all codes were at root mean square 1
    centred = (cross - np.outer(codes, mean)) / (rows * level[:, None])
    return np.where(varies, np.linalg.pinv(unit, rcond=SINGULAR, hermitian=True) @ (centred / deviation), 0.0)


@dataclass(frozen=True)
class Marker:
    """One line of a table of markers: a feature with its score and its weight in a component, best first."""

    component: int
    place: int
    feature: str | int
    score: float
    weight: float


def table(scores: Array, factor: Array, names: Sequence[str] | None = None, *, top: int = 20) -> list[Marker]:
    """Return the ``top`` features of every component by falling score, those at or below 0 left out."""
    if not isinstance(top, int | np.integer) or top < 1:
        raise CofactorError(f"top: expected a whole number of at least 1, found {top!r}.")
    if names is not None and len(names) != scores.shape[1]:
        raise CofactorError(f"names: expected one for each of {scores.shape[1]} features, found {len(names)}.")
    lines = []
    for i, (row, weights) in enumerate(zip(scores, factor, strict=True)):
        best = [j for j in np.argsort(-row, kind="stable")[:top].tolist() if row[j] > 0]
        lines += [
            Marker(i, place, j if names is None else str(names[j]), float(row[j]), float(weights[j]))
            for place, j in enumerate(best, start=1)
        ]
    return lines


def to_tsv(lines: Sequence[Marker]) -> str:
    """Write a table of markers as tab-separated text."""
    rows: list[Any] = [("component", "place", "feature", "score", "weight")]
    rows += [(m.component, m.place, m.feature, f"{m.score:.6g}", f"{m.weight:.6g}") for m in lines]
    return tsv(rows)
