"""ZHANG: binary matrix factorization by a penalty, then a pair of thresholds from a grid.

Zhang, Li, Ding & Zhang, "Binary matrix factorization with applications", ICDM 2007:
``min 1/2 |X - W H|^2 + lam/2 |W^2 - W|^2 + lam/2 |H^2 - H|^2`` by the multiplicative update

    H <- H (W^T X + 3 lam H^2) / (W^T W H + 2 lam H^3 + lam H),   W likewise.

Choices: start from ``WARM`` unpenalized sweeps with both factors scaled to the same maximum by component;
lam grows by ``GROWTH`` a sweep from ``PENALTY``. Thresholds minimise |X xor (W >= a) o (H >= b)| on a grid of
100 x 100 points in (0, 1] as in the paper FELB (appendix C.1), searched coarse (every tenth point), then fine
around the best: 100 + 361 errors in the place of 10 000.
"""

from __future__ import annotations

import numpy as np

from cofactor.boolean.bits import Bits, check_boolean, error, pack
from cofactor.boolean.elbmf import as_float
from cofactor.types import Array, Data

GRID = np.linspace(1e-12, 1, 100)
WARM, SWEEPS = 50, 150
"""Sweeps without a penalty, and with one."""
PENALTY, GROWTH = 0.01, 1.05
"""What deviations from 0 and 1 cost at first, and by what that grows in every sweep."""


def factorize(X: Data, rank: int, rng: np.random.Generator | None = None) -> tuple[Array, Array]:
    """Return Boolean (W n x k, H k x m), uint8: penalized NMF, then the best pair of thresholds."""
    check_boolean(X)
    rng = np.random.default_rng(0) if rng is None else rng
    A = as_float(X)
    W = rng.random((X.shape[0], rank), dtype=np.float32)
    H = rng.random((rank, X.shape[1]), dtype=np.float32)
    for _ in range(WARM):
        W, H = _sweep(A, W, H, 0.0)
    W, H = balance(W, H)
    for t in range(SWEEPS):
        W, H = _sweep(A, W, H, PENALTY * GROWTH**t)
    return threshold(pack(X), W, H)


def balance(W: Array, H: Array) -> tuple[Array, Array]:
    """Return (W, H) with the same product and, by component, the same maximum in W as in H."""
    top_W, top_H = W.max(axis=0, initial=1e-12), H.max(axis=1, initial=1e-12)
    scale = np.sqrt(top_H / top_W)
    return W * scale, H / scale[:, None]


def threshold(X: Bits, W: Array, H: Array) -> tuple[Array, Array]:
    """Return ``(W >= a, H >= b)`` (uint8) of the smallest error over the coarse, then the fine grid."""
    packed: dict[tuple[str, int], Bits] = {}

    def cut(name: str, F: Array, p: int) -> Bits:
        if (name, p) not in packed:
            packed[name, p] = pack(_cut(F, p))
        return packed[name, p]

    def cost(point: tuple[int, int]) -> int:
        return error(X, cut("W", W, point[0]), cut("H", H, point[1]))

    a, b = min(((p, q) for p in range(4, 100, 10) for q in range(4, 100, 10)), key=cost)
    near = [[p for p in range(c - 9, c + 10) if 0 <= p < 100] for c in (a, b)]
    a, b = min(((p, q) for p in near[0] for q in near[1]), key=cost)
    return _cut(W, a).astype(np.uint8), _cut(H, b).astype(np.uint8)


def _cut(F: Array, point: int) -> Array:
    return np.greater_equal(F, GRID[point])


def _sweep(X: Data, W: Array, H: Array, lam: float) -> tuple[Array, Array]:
    W = _update(W, H @ H.T, X @ H.T, np.float32(lam))
    return W, _update(H.T, W.T @ W, X.T @ W, np.float32(lam)).T


def _update(F: Array, gram: Array, cross: Array, lam: np.float32) -> Array:
    square = F * F
    return F * (cross + 3 * lam * square) / (F @ gram + lam * F * (2 * square + 1) + np.float32(1e-9))
