"""Mergeable summaries: one upload per client that stands for its data in any later factorization.

A client factorizes alone at rank r and sends ``H_j`` (r x m, rows at norm 1) and ``G_j = W_j^T W_j`` (r x r).
For any H its own reconstruction costs ``|W_j H_j - (W_j C) H|^2 = tr((H_j - C H)^T G_j (H_j - C H))`` with
``C >= 0`` (r x k), so a server can factorize the union of summaries without asking again: late clients
join the union, a tree of servers summarizes summaries, and every rank up to r comes from one upload.
Summaries are not a sum: the server sees each one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cofactor.combine.align import Lap
from cofactor.combine.consensus import DENSITY, agree
from cofactor.files import atomic, undamaged
from cofactor.local import unions
from cofactor.local.descents import Descents
from cofactor.local.stacked import Summary, stacked
from cofactor.local.told import counted
from cofactor.types import Array, CofactorError

ALONE = 100
"""Iterations of each start of a consensus."""
REFITTED = 3
"""Iterations from the medians of a consensus: on expression data they end 13 % lower, and many more at about that."""
SWEEPS = 200
"""Sweeps that find codes for a factor that stays."""


def summarize(W: Array, H: Array, *, square: float) -> Summary:
    """Summarize a factorization ``X ~ W H`` of data with ``|X|^2 = square``."""
    return Summary(H, (W.T @ W).astype(np.float64), float(W.shape[0]), float(square))


def save(path: str | Path, summaries: Sequence[Summary]) -> None:
    """Write summaries to one npz file."""
    arrays = {f"{name}_{i}": np.asarray(v) for i, s in enumerate(summaries) for name, v in s._asdict().items()}
    with atomic(Path(path)) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load(path: str | Path) -> list[Summary]:
    """Read summaries that :func:`save` wrote; ``load(a) + load(b)`` is their union."""
    with undamaged(Path(path), "saved summaries"), np.load(path, allow_pickle=False) as file:
        count = sum(name.startswith("factor_") for name in file.files)
        if count == 0:
            raise CofactorError(f"{path}: expected saved summaries (arrays factor_0, gram_0, ...), found {file.files}.")
        fields = [{name: file[f"{name}_{i}"] for name in Summary._fields} for i in range(count)]
    return [Summary(f["factor"], f["gram"], float(f["rows"]), float(f["square"])) for f in fields]


def merge(summaries: Sequence[Summary], rank: int, *, seed: int = 0, restarts: int = 8) -> Summary:
    """Summarize a union of summaries as one of the given rank: ``G = sum_j C_j^T G_j C_j``."""
    found = search(summaries, rank, seed=seed, restarts=restarts)
    dtype = summaries[0].factor.dtype
    return Summary(
        found.factor.astype(dtype), found.gram, sum(s.rows for s in summaries), sum(s.square for s in summaries)
    )


class Fitted(NamedTuple):
    """The factor of a union: H (k x m, rows at norm 1), codes C of the summaries (c x r x k), and how sure it is.

    Where rows were drawn, codes are theirs; ``gram`` (k x k) is that of all codes, ``share`` (k) that of every
    component in what they explain. ``stability`` (k) is the worst cosine of every component with its partners in other
    restarts that are as good: 1 where there are none, NaN where nothing was compared. A consensus has instead how far
    the cluster of each stands apart from the others (``silhouette``), and a ``clustergram``. ``drift`` is the mean
    distance of the clients' factors to this one, components matched, where somebody asked.
    """

    factor: Array
    codes: Array
    gram: Array
    share: Array
    stability: Array
    silhouette: Array | None = None
    clustergram: Array | None = None
    drift: float = np.nan


def fit(
    summaries: Sequence[Summary], rank: int, *, seed: int = 0, restarts: int = 8, iterations: int = 200
) -> tuple[Array, Array]:
    """Minimize ``sum_j tr((H_j - C_j H)^T G_j (H_j - C_j H))`` over C_j, H >= 0; return (H, stacked C).

    Restarts are halved as they go (:mod:`cofactor.local.unions`); the best goes on for up to ``iterations``.
    """
    found = search(summaries, rank, seed=seed, restarts=restarts, iterations=iterations)
    return found.factor, found.codes


def search(
    summaries: Sequence[Summary],
    rank: int,
    *,
    seed: int = 0,
    restarts: int = 8,
    iterations: int = 200,
    drawn: int = 0,
    renews: bool = False,
) -> Fitted:
    """Fit a union as :func:`fit` does, and say how well other restarts agree.

    With ``renews`` components of the best one begin anew where that pays (:mod:`cofactor.local.anew`).

    With ``drawn`` the last steps are on so many rows for each component of a summary, with codes of the same gram:
    codes that :func:`fit` keeps to the cone of the client's own are free there, and H ends closer to the pooled one.
    What the summaries miss of the data counts as loss too: ``|X_j|^2`` less what a summary explains.
    """
    how: Any = {"seed": seed, "restarts": restarts, "iterations": iterations, "drawn": drawn, "renews": renews}
    found = unions.search(summaries, rank, **how)
    return Fitted(*found[:4], _agreement(found.runs) if found.runs else np.full(rank, np.nan))


def _agreement(runs: Sequence[Array]) -> Array:
    """Return the worst cosine of every component of the first run with its partners in the others, one each (k)."""
    H, *others = runs
    found = [np.clip(np.einsum("km,km->k", H, Lap()(H, other) @ other), 0, 1) for other in others]
    return np.min([np.ones(len(H)), *found], axis=0)


def agreed(summaries: Sequence[Summary], rank: int, *, starts: int = 100, density: float = DENSITY) -> Fitted:
    """Fit a union from many starts, each alone, and return what they agree on (:mod:`cofactor.combine.consensus`).

    A median of components explains less than any of them, so that from the medians the factor goes on for a few
    iterations on the union, as cNMF refits its spectra. Where the union has no more components than the rank, all
    starts are those, and silhouettes are NaN.
    """
    seeds = np.random.default_rng(0).integers(2**31, size=starts).tolist()

    def start(s: int) -> Array:
        return fit(summaries, rank, seed=s, restarts=1, iterations=ALONE)[0]

    found = agree(list(map(counted(start, starts, "starts"), seeds)), density=density)
    union = stacked(summaries)
    descent = Descents.of(union, [found.factor])
    descent.codes(SWEEPS)
    descent.advance(REFITTED)
    known = np.full(rank, np.nan)
    apart = found.silhouette if len(union.alive) > rank else known
    return Fitted(*descent.found()[:4], known, apart, found.clustergram)


def loss(summaries: Sequence[Summary], H: Array) -> float:
    """Return ``min_C sum_j tr((H_j - C_j H)^T G_j (H_j - C_j H))``: what H misses of the summaries."""
    return float(Descents.of(stacked(summaries), [H]).codes(SWEEPS)[0])
