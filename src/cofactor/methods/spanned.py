"""A start from sums: parts of the leading singular vectors of all rows, whoever holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cofactor.local import arrays
from cofactor.local.init import random_factor
from cofactor.local.placed import to_host
from cofactor.local.stats import normalize
from cofactor.method import total
from cofactor.methods.from_sums import FromSums
from cofactor.methods.refusals import START
from cofactor.types import Array, CofactorError, Data, Local, Message, Shared

POWERS, BESIDE = 4, 10
"""Rounds in which directions turn to the leading singular vectors, and how many there are beside those of the rank.

Of 49 fits of stored data of 128 features and more (several ranks) five end above scikit-learn's error, with two rounds
twelve, with three and four directions beside twelve, too: the last vectors are then too far off.
"""
EPS, TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)
LITTLE = 1e-6
"""What an entry of a vector of norm 1 has at most that counts as none."""


@dataclass(frozen=True)
class Spanned(FromSums):
    """Rounds of sums: ``sum_j X_j^T X_j Q`` turns directions Q, and ``|[X_j v]_+|^2`` says on which side of v rows are.

    The factor has of every singular vector v the part ``[v]_+`` or ``[-v]_+`` that holds more of the data, with its
    side of the rows, and the mean of the data where that is zero (NNDSVDa, Boutsidis and Gallopoulos 2008): zeros would
    keep apart what belongs together. The first directions are the same in every run: a start that draws nothing gives
    every seed the same components.
    """

    refusal = START
    rounds = POWERS + 1

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``span`` (directions x m); in the last round ``sides`` (2 x k)."""
        width = min(self.rank + BESIDE, n_features)
        return {"span": (width, n_features)} if t < POWERS else {"sides": (2, min(self.rank, width))}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at directions that are the same in every run."""
        if factor is not None:
            raise CofactorError("a factor of singular vectors takes no start: it comes from sums alone.")
        signs = np.random.default_rng(1).integers(2, size=self.schema(n_features, 0)["span"], dtype=np.int8)
        return Shared(np.zeros((self.rank, n_features)), {"directions": (2 * signs - 1).astype(np.float32)})

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Send what the rows make of the directions, or how many of them are on either side of each."""
        along = arrays.times_factor(data, shared.extra["directions"].astype(data.dtype, copy=False))
        if t < POWERS:
            return local, Message({"span": arrays.times_codes(data, along).T}, data.shape[0])
        sides = np.stack([np.sum(np.maximum(side, 0) ** 2, axis=0, dtype=np.float64) for side in (along, -along)])
        return local, Message({"sides": sides.astype(data.dtype, copy=False)}, data.shape[0])

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Make the span orthogonal; then its leading vectors; then their parts."""
        sums = total(messages)
        if t < POWERS:
            span, dtype = to_host(sums.arrays["span"]), sums.dtype("span")
            found = _leading(shared.extra["directions"], span, self.rank) if t + 1 == POWERS else _orthogonal(span)
            size = np.linalg.norm(found, axis=1)
            return shared._replace(extra={"directions": normalize(found).astype(dtype)}, memory={"energy": size})
        dtype = sums.dtype("sides")
        known: Any = {"energy": shared.memory["energy"], "rows": sums.weight, "eps": float(np.finfo(dtype).eps)}
        vectors = np.asarray(shared.extra["directions"], np.float64)
        parts = _parts(vectors, np.sqrt(to_host(sums.arrays["sides"])), **known)
        others = random_factor(self.rank - len(parts), vectors.shape[1], np.random.default_rng(1))
        return shared._replace(factor=np.vstack([parts, others]).astype(dtype))


def _orthogonal(span: Array) -> Array:
    """Return orthogonal directions, of norm 1, that span the same: of thousands of features in a third of QR's time.

    What rounding of the gram leaves the first time, the second time takes away.
    """
    for _ in range(2):
        values, turn = np.linalg.eigh(span @ span.T)
        span = (turn / np.sqrt(np.maximum(values, EPS * values[-1] + TINY))).T @ span
    return span


def _leading(directions: Array, span: Array, rank: int) -> Array:
    """Return ``X^T X v`` of the leading singular vectors v that directions Q span, from ``X^T X Q``; the largest first.

    ``Q^T X^T X Q`` turns Q to them, and once more times ``X^T X`` they are nearer yet. Norms are squares of singular
    values.
    """
    moment = np.asarray(directions, np.float64) @ span.T
    return np.linalg.eigh(moment + moment.T)[1].T[::-1][:rank] @ span


def _parts(vectors: Array, along: Array, *, energy: Array, rows: float, eps: float) -> Array:
    """Return the stronger part of every vector, rows at norm 1, at random where nothing is left of the data along it.

    A part with its side of the rows, ``along`` (2 x k) long, holds ``|[X v]_+| |[v]_+|``. Beside the square root of
    that the mean of the data counts where the part is zero: about ``s_1 mean |v_1| / sqrt(rows)``.
    """
    vectors, along = vectors.copy(), along.copy()
    vectors[0], along[:, 0] = np.abs(vectors[0]), (np.sqrt(energy[0]), 0.0)
    sides = np.stack([np.maximum(vectors, 0), np.maximum(-vectors, 0)])
    length = np.sqrt(np.einsum("skm,skm->sk", sides, sides))
    chosen = np.argmax(along * length, axis=0), np.arange(len(vectors))
    size = np.sqrt(along[chosen] / np.maximum(length[chosen], LITTLE))
    mean = np.sqrt(energy[0] / max(rows, 1.0)) * vectors[0].mean()
    H = np.where(sides[chosen] > LITTLE, sides[chosen] * size[:, None], mean)
    lost = ~(energy > 10 * eps * energy[0])
    H[lost] = random_factor(int(lost.sum()), H.shape[1], np.random.default_rng(1))
    return normalize(H)
