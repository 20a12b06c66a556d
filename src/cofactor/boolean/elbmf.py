"""ELBMF: Boolean factorization by a relaxation, iPALM steps and a binary prox.

``min 1/2 |X - W H|^2 + R(W) + R(H)`` with W, H in [0, 1]; the rate of R grows until the factors are bits
(Dalleiger & Vreeken, "Efficiently factorizing Boolean matrices using proximal gradient descent", NeurIPS
2022; iPALM: Pock & Sabach 2016). X enters only by X H^T and X^T W, so sparse data stays sparse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.boolean.bits import check_boolean
from cofactor.boolean.packed import kernel
from cofactor.boolean.prox import Prox, elb_prox, lam_at
from cofactor.local.kernels import tensor_relaxed
from cofactor.local.kernels.orders import by_rows
from cofactor.local.placed import Placed, placed
from cofactor.local.threads import product
from cofactor.types import Array, Data


@dataclass(frozen=True)
class Relaxation:
    """Regularization (kappa, lam), inertia beta, growth of lam by a step, and the prox (ELB or ALB)."""

    kappa: float = 0.01
    lam: float = 0.01
    beta: float = 0.01
    rate: float = 1.01
    prox: Prox = elb_prox


DEFAULT = Relaxation()
FEW, WIDE = 0.3, 100
"""Below which share of cells that are not 0 they are multiplied one by one, from which rank on; else BLAS is faster."""
CELLS, FILLED = 1 << 24, 1 / 16
"""Up to so many cells, and from such a share of ones on, sparse data are multiplied as dense ones, which is faster."""


def factorize(
    X: Data,
    rank: int,
    rng: np.random.Generator | None = None,
    *,
    params: Relaxation = DEFAULT,
    steps: int = 500,
    top: float = 1.0,
) -> tuple[Array, Array]:
    """Return Boolean (W n x k, H k x m), uint8: iPALM from a start uniform in [0, top], then rounded at 1/2."""
    check_boolean(X)
    W, H = relax(as_float(X), rank, rng, params=params, steps=steps, top=top)
    return binary(W), binary(H)


def relax(
    X: Data,
    rank: int,
    rng: np.random.Generator | None = None,
    *,
    params: Relaxation = DEFAULT,
    steps: int = 500,
    top: float = 1.0,
) -> tuple[Array, Array]:
    """Return the relaxed (W n x k, H k x m) in [0, 1] before rounding; X as :func:`as_float` gives it."""
    rng = np.random.default_rng(0) if rng is None else rng
    W = (top * rng.random((X.shape[0], rank))).astype(X.dtype)
    H = (top * rng.random((rank, X.shape[1]))).astype(X.dtype)
    W_prev, H_prev = W, H
    for t in range(steps):
        new_W, new_H = ipalm_step(X, W, H, W_prev=W_prev, H_prev=H_prev, t=t, params=params)
        W_prev, H_prev, W, H = W, H, new_W, new_H
    return W, H


def ipalm_step(
    X: Data, W: Array, H: Array, *, W_prev: Array, H_prev: Array, t: int, params: Relaxation = DEFAULT
) -> tuple[Array, Array]:
    """Return (W, H) after one step: W, then H with the new W, each by inertia, gradient and prox.

    ``F <- prox_{kappa eta, lam_t eta}(E - eta (E gram - cross))``, ``E = F + beta (F - F_prev)``,
    ``eta = 2 (1 - beta) / (1 + 2 beta) / |gram|_F``. The prox must be scaled by eta; the paper's text leaves
    that out. X (n x m) is floating; ``*_prev`` are the factors before W and H (the same at the start).
    """
    W = descend(W, W_prev, gram=H @ H.T, cross=X @ H.T, t=t, params=params)
    # X.T of a CSR matrix is a CSC view: no copy
    H = descend(H.T, H_prev.T, gram=W.T @ W, cross=X.T @ W, t=t, params=params).T
    return W, H


def descend(F: Array, F_prev: Array, *, gram: Array, cross: Array, t: Any, params: Relaxation) -> Array:
    """Return F (rows x k) after one inertial proximal gradient step on ``1/2 |X - F B|^2 + R(F)``.

    The prox leaves many cells at 0: where less than a share ``FEW`` is not, ``E gram`` is added up from these alone.
    F follows the statistics to where they are.
    """
    lam = lam_at(t, params.lam, rate=params.rate)
    if isinstance(cross, Placed):
        own = (placed(a, cross.tensor.device).astype(F.dtype, copy=False).tensor for a in (F, F_prev, gram, cross))
        moved, size = tensor_relaxed.inertial(*own, params.beta)
        grown = lam.tensor.to(size.dtype) if isinstance(lam, Placed) else lam
        return params.prox(Placed(moved), params.kappa * size, grown * size)
    E, filled = F, F.size
    if params.beta:
        E = np.empty(F.shape, F.dtype)
        filled = _ahead(by_rows(F), by_rows(F_prev), F.dtype.type(params.beta), E)
    norm = float(np.linalg.norm(gram))
    # no gram, no information about F: a step of length zero leaves it where it is
    eta = 2 * (1 - params.beta) / (1 + 2 * params.beta) / norm if norm else 0.0
    if len(gram) >= WIDE and E.flags.c_contiguous and filled < FEW * E.size:
        G = _step_of_few(E, gram, np.ascontiguousarray(cross), F.dtype.type(-eta))
    else:
        G = product(E, gram)
        _step(G, cross, E, F.dtype.type(-eta))
    return params.prox(G, params.kappa * eta, lam * eta, out=G)


@kernel
def _ahead(F: Array, F_prev: Array, beta: float, E: Array) -> int:
    """Write ``F + beta (F - F_prev)`` to E in one pass; return how many of its cells are not 0."""
    filled = 0
    for i in range(F.shape[0]):
        for j in range(F.shape[1]):
            E[i, j] = F[i, j] + beta * (F[i, j] - F_prev[i, j])
            filled += E[i, j] != 0
    return filled


@kernel
def _step(G: Array, cross: Array, E: Array, scale: float) -> None:
    """Turn G into ``E + scale (G - cross)`` in one pass, rounded like the three operations one by one."""
    for i in range(G.shape[0]):
        for j in range(G.shape[1]):
            G[i, j] = (G[i, j] - cross[i, j]) * scale + E[i, j]


@kernel
def _step_of_few(E: Array, gram: Array, cross: Array, scale: float) -> Array:
    """Return ``E + scale (E gram - cross)``, row by row from the cells of E that are not 0, four at a time."""
    rows, k = E.shape
    out, places = np.empty(E.shape, E.dtype), np.empty(k + 1, np.uint32)
    for i in range(rows):
        size, first = 0, 0
        for j in range(k):
            places[size] = j
            size += E[i, j] != 0
        total = out[i]
        total[:] = 0
        while first + 4 <= size:
            a, b, c, d = places[first], places[first + 1], places[first + 2], places[first + 3]
            e, f, g, h = E[i, a], E[i, b], E[i, c], E[i, d]
            A, B, C, D = gram[a], gram[b], gram[c], gram[d]
            for j in range(k):
                total[j] += e * A[j] + f * B[j] + g * C[j] + h * D[j]
            first += 4
        for a in places[first:size]:
            e, A = E[i, a], gram[a]
            for j in range(k):
                total[j] += e * A[j]
        for j in range(k):
            total[j] = (total[j] - cross[i, j]) * scale + E[i, j]
    return out


def as_float(X: Data, dtype: type = np.float32) -> Data:
    """Return Boolean data as the floating matrix that the steps multiply: CSR if sparse and large, else C order."""
    if sparse.issparse(X):
        cells = X.shape[0] * X.shape[1]
        dense = cells <= CELLS and X.nnz >= FILLED * cells
        X = X.toarray() if dense else X.tocsr().astype(dtype)
    return X if sparse.issparse(X) else np.ascontiguousarray(X, dtype=dtype)


def binary(F: Array) -> Array:
    """Return F rounded at 1/2 to zeros and ones (uint8); exactly 1/2 is a zero, as in the prox."""
    return np.ascontiguousarray(F > 0.5).astype(np.uint8)
