"""What a model knows, written into AnnData where scanpy looks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cofactor.select.markers import table
from cofactor.types import Array

CODES, FACTOR, FACTS, RANKED = "X_cofactor", "cofactor", "cofactor", "rank_genes_cofactor"
"""Where codes (``obsm``), factor (``varm``), facts and marker table (``uns``) go."""
CLUSTERS = "cofactor"
"""The column of ``obs`` that names the cluster of every row."""
TOP = 100
"""Markers of a component in the table."""


def annotate(
    held: Any,
    codes: Array,
    factor: Array,
    names: Sequence[str],
    *,
    facts: Mapping[str, Any],
    scores: Array | None = None,
    clusters: bool = False,
) -> None:
    """Write codes (n x k), factor and marker scores (k x m over ``names``) and facts into AnnData, in place.

    ``obsm["X_cofactor"]`` holds the codes, ``varm["cofactor"]`` the factor (features that it does not have are 0),
    ``varm["cofactor_markers"]`` the marker scores, ``uns["cofactor"]`` the facts. ``uns["rank_genes_cofactor"]`` is a
    table as ``scanpy.tl.rank_genes_groups`` writes it: ``sc.get.rank_genes_groups_df(adata, "0",
    key="rank_genes_cofactor")``. Of ``clusters``, ``obs["cofactor"]`` is that of each row, the one of its largest code.
    """
    held.obsm[CODES] = np.asarray(codes)
    held.varm[FACTOR] = _over(held.var_names, names, factor)
    held.uns[FACTS] = dict(facts)
    if scores is not None:
        held.varm[f"{FACTOR}_markers"] = _over(held.var_names, names, scores)
        held.uns[RANKED] = ranked(scores, factor, names)
    if clusters:
        from pandas import Categorical  # AnnData has it

        held.obs[CLUSTERS] = Categorical(np.argmax(codes, axis=1).astype(str), [str(i) for i in range(len(factor))])


def _over(wanted: Any, names: Sequence[str], rows: Array) -> Array:
    """Return k x m arrays as features x k, over other features."""
    place = {str(name): i for i, name in enumerate(names)}
    index = np.array([place.get(str(name), -1) for name in wanted])
    out = np.zeros((len(index), len(rows)), rows.dtype)
    out[index >= 0] = rows.T[index[index >= 0]]
    return out


def ranked(scores: Array, factor: Array, names: Sequence[str]) -> dict[str, Any]:
    """Return the best features of every component as record arrays, one field for each component."""
    lines = table(scores, factor, names, top=TOP)
    k = len(scores)
    found = [[line for line in lines if line.component == i] for i in range(k)]
    length = max(1, *(len(own) for own in found))

    def records(column: list[list[Any]], kind: str, empty: Any) -> Array:
        out = np.full(length, empty, dtype=[(str(i), kind) for i in range(k)])
        for i, values in enumerate(column):
            out[str(i)][: len(values)] = values
        return out

    return {
        "params": {"method": "logreg", "groupby": "component", "reference": "rest", "use_raw": False},
        "names": records([[line.feature for line in own] for own in found], "O", ""),
        "scores": records([[line.score for line in own] for own in found], "<f4", np.nan),
    }
