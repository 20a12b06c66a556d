"""Matrices with a planted factor: what was put in is known, so what comes out can be judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cofactor.data._random import generator
from cofactor.types import Array, CofactorError

Range = tuple[float, float]

NOISES: dict[str, Callable[[Array, float, np.random.Generator], Array]] = {
    "gaussian": lambda X, scale, rng: np.maximum(X + rng.normal(0.0, scale, X.shape), 0.0),
    "exponential": lambda X, scale, rng: X + rng.exponential(scale, X.shape),
    "binomial": lambda X, scale, rng: X + scale * rng.binomial(10, 0.1, X.shape),
}
"""What a noise makes of X >= 0: [X + N(0, scale²)]_+, X + Exp(scale), X + scale * Binomial(10, 0.1). The last
two have mean and deviation of about ``scale``; all keep X >= 0."""


class Planted(NamedTuple):
    """One matrix ``X ~ codes @ factor`` (n x m, n x k, k x m)."""

    X: Array
    factor: Array
    codes: Array


class PlantedClients(NamedTuple):
    """Clients ``Xs[j] ~ codes[j] @ factor`` (n_j x m, n_j x k, k x m)."""

    Xs: list[Array]
    factor: Array
    codes: list[Array]


def blocks(
    clients: int = 10,
    rows: int | Sequence[int] = 200,
    *,
    features: int = 100,
    rank: int = 10,
    patterns: int | None = None,
    noise: str | None = "gaussian",
    scale: float = 0.1,
    seed: int = 0,
) -> PlantedClients:
    """Dense positive blocks plus noise: ``X_j = W_j H + noise >= 0`` (paper FNMF, section 4).

    Row l of H is a pattern: U(.5, 1.5) on m/k to 2m/k random columns, zero elsewhere. Each row of W_j uses
    one to three of its client's patterns with codes U(.5, 1.5), so signal cells are around 1 and ``scale`` is
    relative to them. ``patterns`` limits how many of the rank patterns a client sees: client j sees pattern
    j mod k (so that all are seen somewhere when there are at least k clients) and random others. ``rows`` may
    be one number per client. The paper does not print its generator; these sizes are our choice. With the
    defaults the planted H is within 6 % of the best pooled RMSD and recovered to a cosine above .99.
    """
    seen = rank if patterns is None else patterns
    _check("rank", rank, limits=(1, features))
    _check("patterns", seen, limits=(1, rank))
    if noise is not None and noise not in NOISES:
        raise CofactorError(f"noise must be None or one of {sorted(NOISES)}. Found {noise!r}.")
    if np.size(rows) not in (1, clients):
        raise CofactorError(f"rows must be one number, or one per client ({clients}). Found {np.size(rows)}.")
    factor = _patterns(generator(seed, purpose="blocks factor"), rank, features)
    Xs, codes = [], []
    for j, n in enumerate(np.broadcast_to(rows, clients).tolist()):
        rng = generator(seed, j, purpose="blocks client")
        W = _sparse_codes(rng, n, rank, seen=_choose(rng, rank, seen, always=j % rank))
        Xs.append(W @ factor if noise is None else NOISES[noise](W @ factor, scale, rng))
        codes.append(W)
    return PlantedClients(Xs, factor, codes)


def tiles(
    n: int,
    m: int,
    k: int,
    *,
    height: Range = (0.05, 0.20),
    width: Range = (0.05, 0.15),
    density: float = 0.9,
    noise: float = 0.05,
    seed: int = 0,
) -> Planted:
    """Boolean tiles: ``X = (W o H) and Bernoulli(density)``, then each cell flipped at the rate ``noise``.

    Tile l is a random set of rows (column l of W) times a random set of columns (row l of H); their sizes are
    uniform in the ranges ``height`` of n and ``width`` of m. X, codes and factor are uint8 zeros and ones.
    """
    shares = {"height": height, "width": width, "density": (density,), "noise": (noise,)}
    for name, share in shares.items():
        _check(name, *share, limits=(0.0, 1.0))
    rng = generator(seed, purpose="tiles")
    codes, factor = np.zeros((n, k), dtype=np.uint8), np.zeros((k, m), dtype=np.uint8)
    for tile in range(k):
        codes[_subset(rng, n, height), tile] = 1
        factor[tile, _subset(rng, m, width)] = 1
    union = codes.astype(np.float32) @ factor > 0
    X = (union & (rng.random((n, m)) < density)) ^ (rng.random((n, m)) < noise)
    return Planted(X.astype(np.uint8), factor, codes)


def lowrank(n: int, m: int, k: int, *, sparsity: float = 0.5, noise: float = 0.01, seed: int = 0) -> Planted:
    """Plain planted NMF: ``X = [W H + N(0, noise²)]_+``, W, H uniform with a share ``sparsity`` of zeros."""
    _check("sparsity", sparsity, limits=(0.0, 1.0))
    rng = generator(seed, purpose="lowrank")
    codes = rng.random((n, k)) * (rng.random((n, k)) >= sparsity)
    factor = rng.random((k, m)) * (rng.random((k, m)) >= sparsity)
    return Planted(np.maximum(codes @ factor + rng.normal(0.0, noise, (n, m)), 0.0), factor, codes)


def _patterns(rng: np.random.Generator, rank: int, features: int) -> Array:
    factor = np.zeros((rank, features))
    for row in factor:
        columns = _subset(rng, features, (1 / rank, min(2 / rank, 1.0)))
        row[columns] = rng.uniform(0.5, 1.5, len(columns))
    return factor


def _choose(rng: np.random.Generator, rank: int, count: int, *, always: int) -> Array:
    """Choose ``count`` of the rank patterns, ``always`` among them."""
    others = np.delete(np.arange(rank), always)
    return np.append(rng.choice(others, count - 1, replace=False), always)


def _sparse_codes(rng: np.random.Generator, n: int, rank: int, *, seen: Array) -> Array:
    """Codes (n x rank) with one to three positive entries a row, all in the columns ``seen``."""
    used = rng.integers(1, min(3, len(seen)) + 1, n)
    places = rng.permuted(np.broadcast_to(seen, (n, len(seen))), axis=1)
    values = rng.uniform(0.5, 1.5, places.shape) * (np.arange(len(seen)) < used[:, None])
    codes = np.zeros((n, rank))
    np.put_along_axis(codes, places, values, axis=1)
    return codes


def _subset(rng: np.random.Generator, n: int, share: Range) -> Array:
    """Draw a random subset of 0..n-1, never empty, whose size is uniform in the range ``share`` of n."""
    return rng.choice(n, max(1, round(n * rng.uniform(*share))), replace=False)


def _check(name: str, *values: float, limits: Range) -> None:
    low, high = limits
    if not (low <= values[0] <= values[-1] <= high):
        found = ", ".join(map(str, values))
        raise CofactorError(f"{name} must be in [{low}, {high}], the lower bound first. Found {found}.")
