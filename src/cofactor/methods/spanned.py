"""A start from two sums: parts of the leading singular vectors of all rows, whoever holds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cofactor.local import arrays, symmetric
from cofactor.local.init import random_factor
from cofactor.local.stats import normalize
from cofactor.method import total
from cofactor.methods.refusals import START
from cofactor.methods.two_sums import TwoSums
from cofactor.types import Array, CofactorError, Data, Local, Message, Shared

WIDE = 2000
"""Features from which on each singular vector gives one part. It then reaches the error at which scikit-learn ends on
six of six wide matrices of 2000 rows and more (text, tf-idf, pictures; the strongest parts: on four), and on one of
four with fewer rows (on three): where a fit ends depends on its start by hundredths of a percent.
"""


@dataclass(frozen=True)
class Spanned(TwoSums):
    """Two rounds of sums: ``sum_j X_j^T X_j S`` spans Q (m x k), then ``sum_j (X_j Q)^T (X_j Q)`` turns it.

    The factor has the absolute values of the first singular vector and, of the positive and negative parts of the
    others, those with most energy: both signs of the first ones where singular values fall fast (NNSVD-LRC, Atif, Qazi
    and Gillis 2019). Of wide data, such as text, it has one part of each vector (NNDSVD, Boutsidis and Gallopoulos
    2008): both signs of a topic crowd out another one. S is the same in every run: a start that draws nothing gives
    every seed the same components. It costs each client three products, one and a half rounds of
    :class:`~cofactor.methods.summed.Summed`.
    """

    refusal = START

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``span`` (k x m); then ``moment`` (k x k, packed)."""
        return {"span": (self.rank, n_features)} if t == 0 else {"moment": (symmetric.size(self.rank),)}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at k directions that are the same in every run."""
        if factor is not None:
            raise CofactorError("a factor of singular vectors takes no start: it comes from two sums alone.")
        directions = np.random.default_rng(1).standard_normal((self.rank, n_features))
        return Shared(np.zeros_like(directions), {"directions": directions})

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Send what the rows make of the directions, or how they lie along them."""
        along = arrays.times_factor(data, shared.extra["directions"].astype(data.dtype, copy=False))
        if t == 0:
            return local, Message({"span": arrays.times_codes(data, along).T}, data.shape[0])
        moment = symmetric.packed(along.T @ along)
        return local, Message({"moment": moment.astype(data.dtype, copy=False)}, data.shape[0])

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Make the span orthogonal; then take the parts of its leading directions."""
        sums = total(messages)
        if t == 0:
            span = np.linalg.qr(sums.arrays["span"].T)[0].T.astype(sums.dtype("span"))
            return shared._replace(extra={"directions": span})
        energy, turn = np.linalg.eigh(symmetric.unpacked(sums.arrays["moment"], self.rank))
        vectors = turn.T[::-1] @ shared.extra["directions"].astype(np.float64)
        return shared._replace(factor=_parts(vectors, energy[::-1], self.rank).astype(sums.dtype("moment")))


def _parts(vectors: Array, energy: Array, rank: int) -> Array:
    """Return the absolute values of the first vector and the strongest parts of the others (k x m); at random if empty.

    A part ``[v]_+`` or ``[-v]_+`` of a singular vector v holds ``s^2 |part|^2`` of the data, s its singular value. From
    ``WIDE`` features on it is the stronger part of each.
    """
    signs = np.stack([np.maximum(vectors[1:], 0), np.maximum(-vectors[1:], 0)])
    held = energy[1:] * np.einsum("skm,skm->sk", signs, signs)
    if vectors.shape[1] >= WIDE:
        others = signs[np.argmax(held, axis=0), np.arange(rank - 1)]
    else:
        strongest = np.argsort(-held, axis=None, kind="stable")[: rank - 1]
        others = signs.reshape(-1, vectors.shape[1])[strongest]
    H = np.vstack([np.abs(vectors[:1]), others])
    empty = ~H.any(axis=1)
    H[empty] = random_factor(int(empty.sum()), H.shape[1], np.random.default_rng(1))
    return normalize(H)
