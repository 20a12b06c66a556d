"""How good recommendations are. Every number is one client's own; only sums and counts need to travel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cofactor.types import Array


class Ranking(NamedTuple):
    """Precision, recall and NDCG at n of every client with something relevant held out (NaN for the others)."""

    precision: Array
    recall: Array
    ndcg: Array

    @property
    def sums(self) -> Array:
        """Sums over those that have one, and how many these are: what travels in a federation."""
        return np.array([*(np.nansum(a) for a in self), np.isfinite(self.precision).sum()])

    @property
    def mean(self) -> dict[str, float]:
        """Averages over those that have one."""
        return means(self.sums)


def means(sums: Array) -> dict[str, float]:
    """Return the averages that :attr:`Ranking.sums` amount to; NaN where nobody has one."""
    *totals, count = sums
    return {name: float(s / count) if count else np.nan for name, s in zip(Ranking._fields, totals, strict=True)}


def top(scores: Array, n: int, *, seen: Array) -> Array:
    """Return the n items with the highest scores, best first, those in ``seen`` left out; ties go to the first item.

    >>> top(np.array([1.0, 5.0, 3.0, 5.0]), 2, seen=np.array([1]))
    array([3, 2])
    """
    free = np.ones(len(scores), bool)
    free[seen] = False
    items = np.flatnonzero(free)
    return items[np.argsort(-scores[items], kind="stable")[:n]]


def rank_users(W: Array, H: Array, seen: Any, relevant: Any, *, n: int) -> Ranking:
    """Rank the items that each user has not ``seen`` by ``W H``, against ``relevant`` held-out ones.

    Both are CSR (users x items) whose stored entries count; each user needs only the own rows.
    """
    return judged(lists(W, H, seen, n=n), relevant, n=n)


def lists(W: Array, H: Array, seen: Any, *, n: int) -> list[Array]:
    """Return the n best items of each user that are not ``seen`` (CSR, users x items)."""
    return [top(w @ H, n, seen=_items(seen, u)) for u, w in enumerate(W)]


def judged(found: list[Array], relevant: Any, *, n: int) -> Ranking:
    """Judge a list of each user against ``relevant`` items (CSR, users x items)."""
    return Ranking(*np.array([quality(best, _items(relevant, u), n) for u, best in enumerate(found)]).T)


def listed(found: list[Array], m: int) -> Array:
    """Return which of m items are in somebody's list (m bits); of several clients, in that of any."""
    out = np.zeros(m, bool)
    for best in found:
        out[best] = True
    return out


def coverage(W: Array, H: Array, seen: Any, *, n: int) -> float:
    """Return the share of items that are in at least one user's list of n."""
    return float(listed(lists(W, H, seen, n=n), H.shape[1]).mean())


def similar(H: Array, item: int, n: int) -> Array:
    """Return the n items whose columns of H (k x m) have the largest cosine with this one's, best first.

    >>> similar(np.array([[1.0, 2.0, 0.0], [0.0, 0.1, 1.0]]), 0, 1)
    array([1])
    """
    length = np.linalg.norm(H, axis=0)
    cosines = H[:, item] @ H / np.maximum(length * length[item], np.finfo(np.float64).tiny)
    return top(cosines, n, seen=np.array([item]))


def _items(R: Any, user: int) -> Array:
    return R.indices[R.indptr[user] : R.indptr[user + 1]]


def quality(recommended: Array, relevant: Array, n: int) -> tuple[float, float, float]:
    """Precision, recall and NDCG at n of one client's list; NaN where nothing is relevant.

    ``NDCG = sum_r hit_r / log2(r + 1)`` over the places r = 1..n, divided by the same sum of a perfect list.

    >>> quality(np.array([7, 2]), np.array([2, 9]), 2)[:2]
    (0.5, 0.5)
    """
    if len(relevant) == 0:
        return np.nan, np.nan, np.nan
    hits = np.isin(recommended[:n], relevant)
    gains = 1 / np.log2(np.arange(2, n + 2))
    best = gains[: len(relevant)].sum()
    return float(hits.sum() / n), float(hits.sum() / len(relevant)), float(hits @ gains[: len(hits)] / best)
