"""Match components between factors: over seeds, over clients, over rounds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from cofactor.combine import summaries
from cofactor.combine.align import Lap
from cofactor.local.stacked import Summary
from cofactor.local.stats import normalize, shares
from cofactor.types import Array

USED = 0.1
"""A client uses a component whose share there is at least this part of an equal share 1 / k."""
SAME = 0.9
"""Components at this cosine or above are taken for one."""
OWN_RESTARTS, OWN_ITERATIONS = 2, 50


def unit(H: Array) -> Array:
    """Return H with rows at norm 1, in double precision."""
    return normalize(H.astype(np.float64))


def fitted(union: Sequence[Summary], rank: int, **setting: Any) -> Array:
    """Return the factor of a union of summaries."""
    return summaries.fit(union, rank, **setting)[0]


def partners(reference: Array, H: Array) -> tuple[Array, Array]:
    """Return the reference (k x m) and, row by row, its partners in H, all at norm 1; zeros without a partner."""
    A, B = unit(reference), unit(H)
    return A, Lap()(A, B) @ B


def cosines(reference: Array, H: Array) -> Array:
    """Cosine of every row of the reference (k x m) with its partner in H, one partner each; 0 without one (k)."""
    return np.clip(np.einsum("km,km->k", *partners(reference, H)), 0, 1)


def distances(reference: Array, H: Array) -> Array:
    """Distance of every row of the reference (k x m) to its partner in H, both at norm 1 (k)."""
    A, B = partners(reference, H)
    return np.linalg.norm(A - B, axis=1)


def agreement(factors: Sequence[Array]) -> float:
    """Mean matched cosine over all pairs of factors of one rank; NaN for fewer than two."""
    pairs = [float(cosines(A, B).mean()) for A, B in combinations(factors, 2)]
    return float(np.mean(pairs)) if pairs else np.nan


def is_doubled(union: Sequence[Summary]) -> bool:
    """Whether two clients found one component, at a cosine of ``SAME`` or more: together they then hold too many."""
    own = [unit(s.factor[np.diag(s.gram) > 0]) for s in union]
    return any(bool((A @ B.T >= SAME).any()) for A, B in combinations(own, 2))


def own_match(summary: Summary, H: Array, share: Array) -> Array:
    """Cosine of every shared component (k) with its partner in what a client finds alone; 0 without one.

    Its summary is factorized at the rank of H, and at as many components as it uses of the shared ones: of surplus ones
    some are parts of others, and with too few two are one. The better of both partners counts.
    """
    alive = np.diag(summary.gram) > 0
    if not alive.any():
        return np.zeros(len(H))
    most, used = int(alive.sum()), max(int(np.sum(share >= USED / len(share))), 1)

    def own(rank: int) -> Array:
        if rank == most:
            return summary.factor[alive]
        return fitted([summary], rank, seed=0, restarts=OWN_RESTARTS, iterations=OWN_ITERATIONS)

    return np.max([cosines(H, own(rank)) for rank in {min(used, most), min(len(H), most)}], axis=0)


def client_agreement(union: Sequence[Summary], H: Array, C: Array) -> float:
    """How well clients on their own find the shared components they use: mean over clients of ``sum_l s_l cos_l``.

    ``C`` (clients x r x k) are the codes of the summaries in H, the shares ``s_l`` those of the matched components,
    scaled to sum 1. NaN for fewer than two clients that sent something.
    """
    found = []
    for summary, c in zip(union, C, strict=True):
        if not summary.gram.any():
            continue
        share = shares(c.T @ summary.gram @ c, H)
        match = own_match(summary, H, share)
        weight = share * (match > 0)
        found.append(float(weight @ match / weight.sum()) if weight.any() else 0.0)
    return float(np.mean(found)) if len(found) > 1 else np.nan
