"""Train and test parts of ratings: stored entries of a CSR matrix are observed, the rest is unknown."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cofactor.data._random import generator
from cofactor.types import Array, CofactorError, DataError


class RatingsSplit(NamedTuple):
    """Two CSR matrices of the same shape whose stored entries are disjoint."""

    train: Any
    test: Any


def by_time(R: Any, times: Array, *, share: float = 0.2) -> RatingsSplit:
    """Hold out the last ``share`` of every user's ratings; ``times`` has one entry per stored rating.

    A user with fewer than ``1 / share`` ratings keeps them all. Equal times stay in the order of the items.
    """
    _check(R, share)
    if np.shape(times) != (R.nnz,):
        raise DataError(f"times: expected one per rating ({R.nnz}), found shape {np.shape(times)}.")
    users = _users(R)
    order = np.lexsort((np.asarray(times), users))
    return _split(R, _last(R, order, share))


def at_random(R: Any, *, share: float = 0.2, seed: int = 0) -> RatingsSplit:
    """Hold out a random ``share`` of every user's ratings."""
    _check(R, share)
    order = np.lexsort((generator(seed, purpose="ratings").uniform(size=R.nnz), _users(R)))
    return _split(R, _last(R, order, share))


def by_user(R: Any, *, share: float = 0.2, seed: int = 0) -> RatingsSplit:
    """Hold out all ratings of a random ``share`` of the users: what a model says to people it never saw."""
    _check(R, share)
    n = R.shape[0]
    away = np.zeros(n, bool)
    away[generator(seed, purpose="users").permutation(n)[: round(share * n)]] = True
    return _split(R, away[_users(R)])


def _check(R: Any, share: float) -> None:
    if not (sparse.issparse(R) and R.format == "csr"):
        raise DataError(f"expected ratings as a CSR matrix, found {type(R).__name__}.")
    if not 0 < share < 1:
        raise CofactorError(f"share must be in (0, 1). Found {share}.")


def _users(R: Any) -> Array:
    return np.repeat(np.arange(R.shape[0]), np.diff(R.indptr))


def _last(R: Any, order: Array, share: float) -> Array:
    """Mark the last ``share`` of every user's entries in ``order``, which keeps users together."""
    counts = np.diff(R.indptr)
    place = np.arange(R.nnz) - np.repeat(R.indptr[:-1], counts)
    late = np.zeros(R.nnz, bool)
    late[order] = place >= np.repeat(counts - np.floor(share * counts).astype(int), counts)
    return late


def _split(R: Any, test: Array) -> RatingsSplit:
    users = _users(R)

    def part(keep: Array) -> Any:
        return sparse.csr_matrix((R.data[keep], (users[keep], R.indices[keep])), shape=R.shape)

    return RatingsSplit(part(~test), part(test))
