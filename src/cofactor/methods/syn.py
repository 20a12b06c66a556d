"""Secure distributed NMF (Qian et al., sections 4.2 and 4.3) as compositions: Syn-SD, Syn-SSD, Asyn-SD, Asyn-SSD.

The paper's U is our factor H, its V our codes W. Three things are corrected. After an average the codes are updated
first: the paper prints the factor first, against codes that belong to another factor. Means are weighted by the energy
of the codes, to which the clients' proximal steps are relative. And the weight of proximal coordinate descent is
relative to the gram, so that the unit of the data does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np

from cofactor.combine.aggregators import Mean
from cofactor.local import arrays
from cofactor.local.columns import SomeColumns
from cofactor.local.random_matrices import Drawn
from cofactor.local.sketch import Sketch, Subsampling, right, sketched_stats
from cofactor.local.stats import for_codes, gain, normalize
from cofactor.local.updates import HALS, ProximalCD
from cofactor.method import SERVER, Traits, total
from cofactor.method import rng as address
from cofactor.methods.averaged import Averaged
from cofactor.methods.refusals import SKETCH
from cofactor.methods.sketched import WEIGHT as SKETCHED
from cofactor.methods.sketched import Ramp
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Array, CofactorError, Data, DataError, Local, Message, Shared, Stats

WEIGHT = 0.1
"""Of the proximal term, on the shared or sketched half only. With 0.05 faces / digits sorted over 8 clients end a
little lower (1.014 / 1.006 instead of 1.018 / 1.009 times the pooled error, means of 2 seeds), and genes, of four rows
a client, up to 4 % from where twice as many rounds end (here 2 %)."""


@dataclass(frozen=True)
class Relaxed:
    """The server of Alg. 6: ``H <- (1 - w) H + w H_r``, ``w = rho / (rho + t)``, rows back at norm 1.

    ``t`` counts the updates from 1: the paper prints it from 0, which makes the first arrival erase the start. Of
    several messages (a synchronous round) it takes the weighted mean.
    """

    rho: float = 10.0
    additive = True
    streams = True

    def noisy(self) -> Relaxed:
        """Return itself: a mean takes noise."""
        return self

    def schema(self, rank: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """``factor`` (k x m), times the weight."""
        return Mean().schema(rank, n_features)

    def message(self, W: Array, H: Array) -> Message:
        """Client: the factor times its weight."""
        return Mean().message(W, H)

    def __call__(self, messages: list[Message], current: Array, t: int) -> Array:
        """Return the relaxed factor; ``t`` counts from 0 here, as all rounds do."""
        w = self.rho / (self.rho + t + 1)
        arrived = Mean()(messages, current, t)
        return normalize((1 - w) * current + w * arrived).astype(arrived.dtype)


@dataclass(frozen=True)
class Exchanged:
    """Syn-SSD with a sketched factor: ``H_j S`` (k x d) is averaged in every round, ``H_j`` in every ``every``-th.

    A round is one sweep (an inner step of Alg. 5). The codes solve ``min_W |X_j S - W (mean of H_j S)|``, then the
    client improves its own H_j as ``inner`` says, with a private sketch of its rows or without. The n_features x d
    matrix S is the same at every client: the server sends one seed, never S. Rounds 0, ``every``, 2 ``every``, ...
    send H_j whole, so T1 x T2 inner steps of the paper are ``(T1 - 1) T2 + 1`` rounds. The printed order needs no
    option here: its codes already see the mean, since the mean of ``H_j S`` is the mean of H_j, times S.
    """

    inner: Averaged
    sketch: Sketch = field(default_factory=Subsampling)
    every: int = 5

    rounds = None

    @property
    def rank(self) -> int:
        """The rank of ``inner``."""
        return self.inner.rank

    @cached_property
    def traits(self) -> Traits:
        """Sums are enough; the factor is renewed in full rounds only."""
        return Traits(additive=True, complete=True, judged="factor", every=self.every, slow=2)

    def partial(self) -> Self:
        """Absent clients are simply not in the mean."""
        return self

    def private(self, privacy: Any, *, rounds: int, parts: Any) -> NoReturn:
        """Refuse."""
        raise PrivacyError(SKETCH)

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``factor`` (k x m) in a full round, ``sketched`` (k x d) in the others, and ``loss``."""
        if t % self.every == 0:
            return self.inner.schema(n_features, t)
        S = self._draw(n_features, 0, t)
        return {"sketched": (self.rank, S.d if S else n_features), "loss": ()}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin as ``inner`` does, with the seed of the sketches."""
        first = self.inner.start(n_features, rng, factor)
        return first._replace(extra={"seed": np.int64(rng.integers(1 << 62)), "sketched": np.zeros((self.rank, 0))})

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Draw random codes; ``cycle`` is the full round whose factor the client has."""
        if isinstance(data, SomeColumns):
            raise DataError("a common sketch of the features needs all of them at every client. Found missing ones.")
        local = self.inner.join(data, shared, t, rng)
        return Local(local.codes, {"factor": local.memory["factor"], "cycle": np.int64(-1)})

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Codes from the mean of the sketches, the client's own factor from the codes; upload one of its two forms."""
        cycle = (t - 1) // self.every
        current = local.memory["cycle"] == cycle
        H = local.memory["factor"] if current else shared.factor.astype(data.dtype, copy=False)
        stats, seen_whole = self._code_stats(data, H, shared, t)
        improve = self.inner.improve_codes if seen_whole else self.inner.update
        W = improve(local.codes, stats, t)
        rows, stats = self.inner.factor_stats(data, W, rng)
        F = self.inner.update(np.ascontiguousarray(H.T), stats, t)
        loss = 0.5 * arrays.square(rows) + gain(stats, F)
        W, H = self.inner.space.scale(W, F.T)
        message = self._message(W, H, int(shared.extra["seed"]), t)
        message.arrays["loss"] = np.float64(loss)
        return Local(W, {"factor": H, "cycle": np.int64(cycle)}), message

    def _code_stats(self, X: Data, H: Array, shared: Shared, t: int) -> tuple[Stats, bool]:
        """Statistics of the codes, seen through the sketch of the round before, or whole where it is none."""
        S = self._draw(X.shape[1], int(shared.extra["seed"]), t - 1)
        mean = shared.extra["sketched"].astype(X.dtype, copy=False)
        if S is None:
            return for_codes(X, mean if mean.size else H), True
        return sketched_stats(right(S, X), mean if mean.size else right(S, H)), S.d >= X.shape[1]

    def _message(self, W: Array, H: Array, seed: int, t: int) -> Message:
        if t % self.every == 0:
            return self.inner.aggregator.message(W, H)
        S = self._draw(H.shape[1], seed, t)
        whole = self.inner.aggregator.message(W, right(S, H) if S else H)
        return whole._replace(arrays={"sketched": whole.arrays["factor"]})

    def _draw(self, n_features: int, seed: int, t: int) -> Drawn | None:
        """Return the common S of round t."""
        return self.sketch.draw(n_features, self.rank, address(seed, SERVER, t))

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Merge the factors, or take the weighted mean of their sketches."""
        if t % self.every == 0:
            new = self.inner.aggregate(shared, messages, t)
            return new._replace(extra={**shared.extra, "sketched": np.zeros((self.rank, 0), new.factor.dtype)})
        sums = total(messages)
        mean = (sums.arrays["sketched"] / (sums.weight or 1.0)).astype(shared.factor.dtype)
        return shared._replace(extra={**shared.extra, "sketched": mean}, loss=float(sums.arrays["loss"]))

    def factor(self, shared: Shared) -> Array:
        """Return the last mean of whole factors."""
        return self.inner.factor(shared)

    def refit(self, data: Data, factor: Array) -> Array:
        """Codes for the final factor."""
        return self.inner.refit(data, factor)


def _averaged(rank: int, sweeps: int, weight: float, **options: Any) -> Averaged:
    """Proximal coordinate descent with growing weights, the weighted mean, one common start."""
    if sweeps < 1:
        raise CofactorError(f"sweeps must be at least 1. Found {sweeps}.")
    if not weight >= 0:
        raise CofactorError(f"weight must be at least 0. Found {weight}.")
    update = ProximalCD(Ramp(weight, weight))
    options = {"aggregator": Mean(energy=True), "calm": 0.0, **options}  # the proximal weights calm it already
    return Averaged(rank, update, sweeps=sweeps, count_sweeps=True, codes_update=HALS(), **options)


def syn_sd(rank: int, *, sweeps: int = 5, weight: float = WEIGHT, printed_order: bool = False) -> Averaged:
    """Syn-SD: local sweeps, then the weighted mean of the factors (Qian et al., Alg. 4).

    ``weight`` is alpha = beta of :class:`Ramp`; 0 is HALS, for which ``printed_order`` is worst.
    """
    return _averaged(rank, sweeps, weight, codes_first=not printed_order)


def syn_ssd_v(
    rank: int, *, sweeps: int = 5, weight: float = WEIGHT, size: float = 0.1, printed_order: bool = False
) -> Averaged:
    """Syn-SSD-V: Syn-SD with a private sketch of the rows in the half-problem of H."""
    return _averaged(rank, sweeps, weight, sketch=Subsampling(size), codes_first=not printed_order)


def syn_ssd_u(rank: int, *, sweeps: int = 5, weight: float = SKETCHED, size: float = 0.1) -> Exchanged:
    """Syn-SSD-U: the sketched factor is averaged at every sweep, the factor after some (Alg. 5)."""
    inner = _averaged(rank, sweeps, weight)
    return Exchanged(replace(inner, sweeps=1), Subsampling(size), sweeps)


def syn_ssd_uv(rank: int, *, sweeps: int = 5, weight: float = SKETCHED, size: float = 0.1) -> Exchanged:
    """Syn-SSD-UV: sketched on both sides, the factor with a common S, the rows with a private one (Alg. 5)."""
    inner = _averaged(rank, sweeps, weight, sketch=Subsampling(size))
    return Exchanged(replace(inner, sweeps=1), Subsampling(size), sweeps)


def asyn_sd(rank: int, *, sweeps: int = 5, weight: float = WEIGHT, rho: float = 10.0) -> Averaged:
    """Asyn-SD: the server relaxes towards each factor as it arrives (Alg. 6 and 7); see engines.stream."""
    return _averaged(rank, sweeps, weight, aggregator=Relaxed(rho))


def asyn_ssd_v(rank: int, *, sweeps: int = 5, weight: float = WEIGHT, rho: float = 10.0, size: float = 0.1) -> Averaged:
    """Asyn-SSD-V: Asyn-SD with a private sketch of the rows in the half-problem of H."""
    return _averaged(rank, sweeps, weight, aggregator=Relaxed(rho), sketch=Subsampling(size))
