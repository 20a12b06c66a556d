"""Factorization of the observed entries of a sparse matrix: stored entries count, the others are unknown."""

from cofactor.ratings.halves import (
    ColumnStats,
    Layout,
    column_stats,
    every,
    item_features,
    known_square,
    losses,
    observed,
    pulls,
    residual_squares,
    solve_codes,
    solve_factor,
)

__all__ = [
    "ColumnStats",
    "Layout",
    "column_stats",
    "every",
    "item_features",
    "known_square",
    "losses",
    "observed",
    "pulls",
    "residual_squares",
    "solve_codes",
    "solve_factor",
]
