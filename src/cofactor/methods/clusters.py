"""Federated clustering: codes are corners of the simplex (one component per row), components are cluster centres."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np

from cofactor.local import arrays, kmeans
from cofactor.local.init import random_factor
from cofactor.local.sets import Free, Simplex
from cofactor.method import Traits, total
from cofactor.methods.fedmavg import FedMAvg
from cofactor.methods.refusals import no_private
from cofactor.methods.staged import Staged
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Array, Data, Local, Message, Shared

SAMPLE = 100
"""Rows for each centre by which a client finds its own; all rows then say where these lie."""
SUMMARY = 3
"""Own centres of a client for each cluster: with as many as clusters, a poor start of one client stays poor."""


@dataclass(frozen=True)
class Clusters:
    """``min 1/2 |X_j - W_j H|^2`` with rows of W_j at corners of the simplex: pooled k-means from sums.

    Round 0 seeds: clients cluster alone (3k centres, at most one for two rows, so that no row leaves) and the server
    runs weighted k-means++ with ``restarts`` on all centres. Later rounds are exact: clients send the sum and the count
    of the rows nearest to each centre. Where nobody has two rows the seeds are random, and a centre that no row ever
    chose is thrown anew around the largest cluster, as far as rows lie from their centres.

    ``changes=True`` is for rounds with absent clients: they stay in the server's running sums with what they sent last.
    """

    rank: int
    restarts: int = 20
    changes: bool = False

    rounds = None

    @cached_property
    def traits(self) -> Traits:
        """Sums and counts add up over rows; the seeds of round 0 are a client's own."""
        judged = "factor" if self.changes else "loss"  # who is absent is not in the loss
        return Traits("clusters", rowwise=1, running=self.changes, judged=judged, stages=(0, 1))

    def partial(self) -> Self:
        """Send changes."""
        return replace(self, changes=True)

    def private(self, privacy: Any, *, rounds: int, parts: Any) -> NoReturn:
        """Refuse."""
        raise PrivacyError(no_private(self.traits.kind))

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``sums`` (k x m), ``counts`` (k) and ``loss``; in round 0 of the client's own 3k centres."""
        centres = self.rank if t > 0 else SUMMARY * self.rank
        return {"sums": (centres, n_features), "counts": (centres,), "loss": ()}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at random or public centres; ``seed`` is for later draws, ``used`` marks centres that had rows."""
        H = random_factor(self.rank, n_features, rng) if factor is None else factor
        return Shared(H, memory={"seed": int(rng.integers(2**31)), "used": np.zeros(self.rank, bool)})

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """No row belongs anywhere yet."""
        return Local(np.zeros((data.shape[0], self.rank), data.dtype))

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Send the sums and counts of the rows of each centre, own or shared, or how they changed."""
        if t == 0:
            return local, self._summary(data, rng)
        W, loss = _nearest(data, shared.factor)
        counted = W - local.codes if self.changes else W  # codes are zeros before the first shared centres
        return Local(W), _sums(data, counted, loss)

    def _summary(self, data: Data, rng: np.random.Generator) -> Message:
        """Cluster alone, at least two rows for every centre: the centre of one would be that row."""
        width = SUMMARY * self.rank
        W = np.zeros((data.shape[0], width), data.dtype)
        loss = 0.0
        if k := min(width, data.shape[0] // 2):
            few = data
            if data.shape[0] > SAMPLE * k:
                few = arrays.rows(data, np.sort(rng.choice(data.shape[0], SAMPLE * k, replace=False)))
            H = kmeans.fit(few, k, weights=np.ones(few.shape[0]), rng=rng)[0]
            away = kmeans.distances(data, H)
            W[np.arange(len(W)), kmeans.paired(data, away)] = 1
            loss = 0.5 * away.min(axis=1).sum()
        return _sums(data, W, loss)

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Cluster the clients' centres; then take means. A centre whose rows are absent stays where it is."""
        dtype = messages[0].dtype("sums")
        sent = total(messages)
        moved = self._seeded(shared, messages) if t == 0 else self._means(shared, sent, t)
        return moved._replace(factor=moved.factor.astype(dtype), loss=float(sent.arrays["loss"]))

    def _seeded(self, shared: Shared, messages: list[Message]) -> Shared:
        counts = np.concatenate([m.arrays["counts"] for m in messages]).astype(np.float64)
        kept = counts > 0
        if kept.sum() < self.rank:
            return shared
        centres = np.vstack([m.arrays["sums"] for m in messages])[kept] / counts[kept, None]
        rng = np.random.default_rng(shared.memory["seed"])
        H = kmeans.fit(centres, self.rank, weights=counts[kept], rng=rng, restarts=self.restarts)[0]
        return shared._replace(factor=H, memory={**shared.memory, "used": np.ones(self.rank, bool)})

    def _means(self, shared: Shared, sent: Message, t: int) -> Shared:
        kept = {name: sent.arrays[name] + shared.memory.get(name, 0) for name in ("sums", "counts")}
        counts = kept["counts"]
        H = np.where(counts[:, None] > 0, kept["sums"] / np.maximum(counts, 1)[:, None], shared.factor)
        used = shared.memory["used"] | (counts > 0)
        if not used.all():
            spread = np.sqrt(2 * float(sent.arrays["loss"]) / (sent.weight * H.shape[1]))
            noise = np.random.default_rng([shared.memory["seed"], t]).normal(0, spread, H.shape)
            H = np.where(used[:, None], H, H[counts.argmax()] + noise)
        memory = {**shared.memory, "used": used, "sizes": counts, **(kept if self.changes else {})}
        return shared._replace(factor=H, memory=memory)

    def factor(self, shared: Shared) -> Array:
        """Return the centres."""
        return shared.factor

    def refit(self, data: Data, factor: Array) -> Array:
        """One at the nearest centre, zero elsewhere."""
        return _nearest(data, factor)[0]


def _nearest(data: Data, H: Array) -> tuple[Array, float]:
    """Return one at the nearest centre of every row (n x k), and half the squared distances to these."""
    away = kmeans.distances(data, H)
    return np.eye(len(H), dtype=data.dtype)[away.argmin(axis=1)], 0.5 * float(away.min(axis=1).sum())


def _sums(data: Data, codes: Array, loss: float) -> Message:
    sums = np.ascontiguousarray(np.asarray(arrays.times_codes(data, codes)).T)
    return Message({"sums": sums, "counts": codes.sum(axis=0), "loss": np.float64(loss)}, data.shape[0])


def labels(codes: list[Array]) -> list[Array]:
    """Return the component with the largest code of every row, client by client."""
    return [W.argmax(axis=1) for W in codes]


def k_means(rank: int, *, restarts: int = 20) -> Clusters:
    """Pooled k-means from sums, after federated k-means++ seeds: each row belongs to one component.

    ``restarts`` are the server's, on the centres of round 0.
    """
    return Clusters(rank, restarts)


def simplex(rank: int, *, restarts: int = 20, code_steps: int = 10) -> Staged:
    """Codes on the simplex, shares that add up to 1, after federated k-means++ seeds.

    FedMAvg with one step on the factor in every round: more of them let clients that hold few clusters pull all
    centres into theirs.
    """
    method = FedMAvg(rank, code_steps, 1, codes=Simplex(), components=Free(), centred=True)
    return Staged(Clusters(rank, restarts), 1, method)
