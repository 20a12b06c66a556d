"""Consensus of many factorizations of the same data: components that keep coming back (cNMF, Kotliar et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cofactor.local.arrays import block_means
from cofactor.local.stats import normalize
from cofactor.types import Array, CofactorError

NEIGHBOURS = 0.3
"""Share of the starts whose nearest components say how dense it is around one."""
DENSITY = 0.5
"""Mean distance to those neighbours above which a component counts as a stray."""
SEEDS = 10
"""Starts of the clustering."""


SIDE = 160
"""Rows and columns of a clustergram at most."""


class Consensus(NamedTuple):
    """What many starts agree on.

    ``factor`` (k x m) are the medians of the clusters, rows at norm 1; ``silhouette`` (k) the mean silhouette of each
    cluster, 1 where its members stand apart from all others; ``sizes`` (k) how many components are in it. Of every
    component of every start: its ``density`` (distance to its neighbours), and its ``cluster``, -1 for strays.
    ``clustergram`` holds the distances between those that were kept, cluster by cluster, in block means.
    """

    factor: Array
    silhouette: Array
    sizes: Array
    density: Array
    cluster: Array
    clustergram: Array


def agree(factors: Sequence[Array], *, density: float = DENSITY) -> Consensus:
    """Return the consensus of factors (each k x m) from different starts.

    Components at norm 1 of all starts are kept where their ``NEIGHBOURS`` nearest ones are closer than ``density`` on
    average, and clustered into k; a component's consensus is the median of its cluster.
    """
    from sklearn.cluster import KMeans

    if len(factors) < 2:
        raise CofactorError(f"a consensus needs at least two starts. Found {len(factors)}.")
    k = len(factors[0])
    rows = normalize(np.concatenate([np.asarray(H, np.float64) for H in factors]))
    distances = _distances(rows)
    near = np.sort(distances, axis=1)[:, 1 : 1 + max(int(NEIGHBOURS * len(factors)), 1)].mean(axis=1)
    kept = (near < density) & rows.any(axis=1)
    if kept.sum() <= k:
        raise CofactorError(
            f"density: expected a threshold that leaves more than {k} components, found {density:g}, which leaves "
            f"{int(kept.sum())} of {len(rows)}; the least stray has {near.min():.3g}. Raise it, or ask for fewer."
        )
    found = KMeans(k, n_init=SEEDS, random_state=0).fit_predict(rows[kept])
    medians = np.array([np.median(rows[kept][found == c], axis=0) for c in range(k)])
    each = _silhouettes(distances[np.ix_(kept, kept)], found, k)
    order = np.argsort([-float(np.sum(found == c)) for c in range(k)], kind="stable")
    cluster = np.full(len(rows), -1)
    cluster[kept] = np.argsort(order)[found]
    silhouette = np.array([each[found == c].mean() for c in order])
    sizes = np.array([int(np.sum(found == c)) for c in order])
    rows_in = np.argsort(np.where(cluster < 0, k, cluster), kind="stable")[: int(kept.sum())]
    clustergram = block_means(distances[np.ix_(rows_in, rows_in)], SIDE)
    return Consensus(normalize(medians[order]), silhouette, sizes, near, cluster, clustergram)


def _distances(rows: Array) -> Array:
    """Distances between all rows at norm 1, by one product."""
    return np.sqrt(np.maximum(2 - 2 * np.clip(rows @ rows.T, -1, 1), 0))


def _silhouettes(distances: Array, cluster: Array, k: int) -> Array:
    """Silhouette of every row: how much nearer its own cluster is than the next one; 0 for one that is alone."""
    belongs = np.equal.outer(cluster, np.arange(k)).astype(np.float64)
    sums, sizes = distances @ belongs, belongs.sum(axis=0)
    here = np.arange(len(cluster)), cluster
    own = sums[here] / np.maximum(sizes[cluster] - 1, 1)
    means = sums / sizes
    means[here] = np.inf
    other = means.min(axis=1, initial=np.inf)
    widest = np.maximum(own, other)
    apart = np.divide(other - own, widest, out=np.zeros_like(own), where=(widest > 0) & np.isfinite(widest))
    return np.where((sizes[cluster] > 1) & np.isfinite(other), apart, 0.0)
