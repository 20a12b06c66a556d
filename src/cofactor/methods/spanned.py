"""Starts at parts of the leading singular vectors of all rows: from sums, whoever holds them, or of one client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cofactor.local import arrays
from cofactor.local.init import random_factor
from cofactor.local.placed import to_host
from cofactor.local.singular import BESIDE, leading, parts
from cofactor.local.stats import normalize
from cofactor.method import Traits, total
from cofactor.methods.from_sums import FromSums
from cofactor.methods.refusals import START
from cofactor.types import Array, CofactorError, Data, Local, Message, Shared

POWERS = 4
"""Rounds in which directions turn to the leading singular vectors.

Of 49 fits of stored data (128 features and more, several ranks) twelve ended above scikit-learn's error with two
rounds, five with four; with three, and four directions beside, twelve, too: the last vectors are then too far off.
"""
EPS, TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Spanned(FromSums):
    """Rounds of sums: ``sum_j X_j^T X_j Q`` turns directions Q, and ``|[X_j v]_+|^2`` says on which side of v rows are.

    The factor has of every singular vector v the part ``[v]_+`` or ``[-v]_+`` that holds more of the data, together
    with its side of the rows (NNDSVD, Boutsidis and Gallopoulos 2008). The first directions are the same in every run:
    a start that draws nothing gives every seed the same components.
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
        directions = np.random.default_rng(1).standard_normal(self.schema(n_features, 0)["span"])
        return Shared(np.zeros((self.rank, n_features)), {"directions": directions})

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Send what the rows make of the directions, or how many of them are on either side of each."""
        along = arrays.times_factor(data, shared.extra["directions"].astype(data.dtype, copy=False))
        if t < POWERS:
            return local, Message({"span": arrays.times_codes(data, along).T}, data.shape[0])
        sides = np.stack([np.sum(np.maximum(side, 0) ** 2, axis=0, dtype=np.float64) for side in (along, -along)])
        return local, Message({"sides": sides.astype(data.dtype, copy=False)}, data.shape[0])

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Make the span orthogonal; then its leading vectors; then their parts. A run may end at any of them."""
        sums = total(messages)
        if t < POWERS:
            span, dtype = to_host(sums.arrays["span"]), sums.dtype("span")
            found = _leading(shared.extra["directions"], span) if t + 1 == POWERS else _orthogonal(span)
            directions = normalize(found).astype(dtype)
            kept = directions[: self.rank] if t + 1 == POWERS else directions
            energy = np.linalg.norm(found, axis=1)[: self.rank]
            return Shared(_whole(np.abs(directions), self.rank), {"directions": kept}, {"energy": energy})
        dtype, energy = sums.dtype("sides"), shared.memory["energy"]
        along, vectors = np.sqrt(np.maximum(to_host(sums.arrays["sides"]), 0)), shared.extra["directions"]
        there = energy > 10 * np.finfo(dtype).eps * energy[0]
        return shared._replace(factor=_whole(parts(vectors, along) * there[:, None], self.rank))


@dataclass(frozen=True)
class Own(FromSums):
    """One client finds the leading singular vectors of its rows by itself, and uploads the same parts of them, once.

    Nobody is there from whom its rows could be kept in the meantime: rounds would only cost it more.
    """

    refusal = START
    rounds = 1
    traits = Traits()

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``factor`` (k x m)."""
        return {"factor": (self.rank, n_features)}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin with nothing."""
        if factor is not None:
            raise CofactorError("a factor of singular vectors takes no start: it comes from the rows alone.")
        return Shared(np.zeros((self.rank, n_features)))

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Send the parts."""
        vectors, sides = leading(data, self.rank)
        H = _whole(parts(vectors, np.sqrt(sides)), self.rank)
        return local, Message({"factor": H.astype(data.dtype, copy=False)}, data.shape[0])

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Begin there; what several clients find by themselves does not add up."""
        if len(messages) > 1:
            raise CofactorError(f"start 'own' is for one client. Found {len(messages)}: 'summaries' is for several.")
        return Shared(messages[0].arrays["factor"])


def _orthogonal(span: Array) -> Array:
    """Return orthogonal directions, of norm 1, that span the same: of thousands of features in a third of QR's time.

    What rounding of the gram leaves the first time, the second time takes away. Those that were longest are first.
    """
    for _ in range(2):
        values, turn = np.linalg.eigh(span @ span.T)
        span = (turn / np.sqrt(np.maximum(values, EPS * values[-1] + TINY))).T[::-1] @ span
    return span


def _leading(directions: Array, span: Array) -> Array:
    """Return ``X^T X v`` of the singular vectors v that directions Q span, from ``X^T X Q``; the largest first.

    ``Q^T X^T X Q`` turns Q to them, and once more times ``X^T X`` they are nearer yet. Norms are squares of singular
    values.
    """
    moment = np.asarray(directions, np.float64) @ span.T
    return np.linalg.eigh(moment + moment.T)[1].T[::-1] @ span


def _whole(H: Array, rank: int) -> Array:
    """Return as many rows as the rank, at norm 1: drawn where there are none, or nothing is in them."""
    there = np.flatnonzero(H[:rank].any(axis=1))
    others = random_factor(rank - len(there), H.shape[1], np.random.default_rng(1))
    return normalize(np.vstack([H[there], others.astype(H.dtype)]))
