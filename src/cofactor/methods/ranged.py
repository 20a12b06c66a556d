"""Private NMF for many clients: the range of the second moment instead of all of it, in uploads of O(r m) numbers.

A packed second moment has m (m + 1) / 2 numbers. Here clients first send ``Y = sum y (U^T y)^T`` for a public random
orthonormal U (m x r), with rows y centred and clipped to C; what stands out of the noise of Y spans the range of the
moment (Halko, Martinsson and Tropp 2011), and inside it, for an orthonormal basis Q, they send
``sum (Q^T y) (Q^T y)^T``.

Sensitivity. One row adds ``y z^T`` with ``|y| <= C`` and ``z = U^T y`` clipped to ``c``, of Frobenius norm
``|y| |z| <= C c``. U does not know the data, so ``|U^T y|`` is close to ``C sqrt(r / m)`` for every row, and c may be
about that: noise on Y is then smaller by ``sqrt(r / m)``, as Y itself is. Signal over noise is that of the whole
moment, whose noise ends at ``sqrt(2 m) sigma``, with ``(sqrt m + sqrt r) sigma`` in its place. The second release adds
``w w^T``, ``w = Q^T y`` clipped to C, of norm ``|w|^2 <= C^2`` packed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cofactor.local import symmetric
from cofactor.local.outliers import Outliers
from cofactor.method import OWN, total
from cofactor.methods import twin
from cofactor.methods.moments import COUNT, MEAN, SEEN, Moments, first_shares, signal
from cofactor.methods.released import Released
from cofactor.privacy import bounded, clip
from cofactor.privacy.allowance import WHOLE, Allowance, Parts, Privacy
from cofactor.privacy.errors import OutOfRangeError
from cofactor.types import Array, Data, Factorizer, Message, Shared

RANGE = 0.65
"""Share of the budget of Y; the moment inside its range, which is much smaller, gets what is left. Flat."""
SKEW = 1e-4
"""How far from orthonormal a basis may be, in single precision too."""
WIDE = 1.2
"""``U^T y`` is clipped at this multiple of ``C sqrt(r / m)``: of random directions hardly any row loses anything."""


@dataclass(frozen=True)
class Ranged(Released):
    """Three rounds: sum and count; Y (m x r); the moment in its range (packed).

    Where too little could be seen, the later rounds sum the rows again, as :class:`~cofactor.methods.moments.Moments`
    does; this is decided from the released count, and again after Y, if nothing of it stands out of its noise.
    """

    factorize: Factorizer
    width: int

    @cached_property
    def means(self) -> Moments:
        """What does all that is about means."""
        return Moments(self.rank, self.allowance, self.factorize)

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``sum`` (m) and ``count``; ``range`` (m r); ``moment`` (packed, or m if that is more)."""
        r = min(self.width, n_features)
        shapes = {"sum": (n_features,), "count": (), "range": (n_features * r,)}
        shapes["moment"] = (max(symmetric.size(r), n_features),)
        return {name: shapes[name] for name in self.allowance.shares[t]}

    def states(self, n_features: int) -> dict[str, tuple[int, ...]]:
        """Centre, bounds, the basis, and whether a moment is released."""
        scalars: dict[str, tuple[int, ...]] = dict.fromkeys(("bound", "short", "second"), ())
        return {"center": (n_features,), "features": (n_features,), "basis": (n_features, OWN), **scalars}

    def check(self, shared: Shared, n_features: int) -> None:
        """Refuse a basis that is not orthonormal, too: a long one makes as much of last bits as of rows."""
        super().check(shared, n_features)
        basis = np.asarray(shared.extra["basis"], np.float64)
        if not np.allclose(basis.T @ basis, np.eye(basis.shape[1]), rtol=0.0, atol=SKEW):
            raise OutOfRangeError("an orthonormal 'basis' was expected. Found another.")

    def bounds(self, shared: Shared, t: int) -> dict[str, float]:
        """Sensitivity of every array of round t: 1; ``C c``; ``C^2``; of means ``C``."""
        bound = float(shared.extra["bound"])
        other = (float(shared.extra["short"]) if t == 1 else bound) if shared.extra["second"] else 1.0
        return dict.fromkeys(self.allowance.shares[t], 1.0 if t == 0 else bound * other)

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin with nothing but a random basis, which is public."""
        shared = self.means.start(n_features, rng, factor)
        drawn = rng.standard_normal((n_features, min(self.width, n_features)))
        extra = {**shared.extra, "basis": np.linalg.qr(drawn)[0], "features": np.arange(n_features)}
        return shared._replace(extra={**extra, "short": np.float64(1.0)})

    def sums(self, data: Data, shared: Shared, t: int) -> dict[str, Array]:
        """The rows and their count; then Y, and the moment in its range, or the rows again."""
        if t == 0:
            return self.means.first(data)
        (name,) = self.allowance.shares[t]
        values = self._inside(data, shared, t) if shared.extra["second"] else self.means.sum_again(data, shared)
        room = np.zeros(self.schema(len(shared.extra["center"]), t)[name])
        room[: len(values)] = values
        return {name: room}

    def _inside(self, data: Data, shared: Shared, t: int) -> Array:
        """Return Y, or the packed moment in its range, as one row of numbers."""
        center, basis, bound = shared.extra["center"], shared.extra["basis"], float(shared.extra["bound"])
        found = np.zeros((len(center) if t == 1 else basis.shape[1], basis.shape[1]))
        for block in bounded.blocks(data, self.allowance.privacy.clip):
            Y = clip.rows(block - center, bound)
            Z = clip.rows(Y @ basis, float(shared.extra["short"]) if t == 1 else bound)
            found += (Y if t == 1 else Z).T @ Z
        return found.ravel() if t == 1 else symmetric.packed(found)

    def merge(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Find the centre; then the range; then draw the twin and factorize it."""
        sums = total(messages)
        if t == 0:
            return self._opened(shared, sums)
        ((name, bound),) = self.bounds(shared, t).items()
        sigma = self.sigma(t, name, bound, sums)
        if not shared.extra["second"]:
            return self.means.mean_again(shared, sums.arrays[name][: len(shared.extra["center"])], sigma)
        return self._spanned(shared, sums, sigma) if t == 1 else self._factored(shared, sums, sigma)

    def _opened(self, shared: Shared, sums: Message) -> Shared:
        """Return the state with the centre and both bounds, or the one in which only means are released."""
        rows, m = float(sums.arrays.get("count", sums.weight)), len(sums.arrays["sum"])
        off = 2 * self.sigma(0, "count", 1.0, sums) if "count" in sums.arrays else 0.0
        drowned = self.drowns(units=rows - off, features=m, clients=sums.weight)
        new = self.means.open(shared, sums, drowned=drowned)
        extra = {**new.extra, "features": np.arange(m)}
        share = min(WIDE * np.sqrt(extra["basis"].shape[1] / m), 1.0)
        sigma = np.float64(self.sigma(0, "sum", 1.0, sums))
        memory = {**new.memory, "sum": sums.arrays["sum"], "sigma": sigma}
        return new._replace(extra={**extra, "short": np.float64(share * extra["bound"])}, memory=memory)

    def _spanned(self, shared: Shared, sums: Message, sigma: float) -> Shared:
        """Return the state with a basis of what of Y stands out of its noise, or without one if nothing does."""
        m, r = shared.extra["basis"].shape
        left, values, _ = np.linalg.svd(sums.arrays["range"].reshape(m, r), full_matrices=False)
        keep = values > sigma * (np.sqrt(m) + np.sqrt(r))
        if keep.any():
            return shared._replace(extra={**shared.extra, "basis": left[:, keep]})
        known = {"center": np.zeros(m), "bound": np.float64(1.0), "second": np.bool_(False)}
        return shared._replace(extra={**shared.extra, **known})

    def _factored(self, shared: Shared, sums: Message, sigma: float) -> Shared:
        """Return the factor of the twin with the moment that was found in the range."""
        basis = shared.extra["basis"]
        r = basis.shape[1]
        found = np.linalg.eigh(symmetric.unpacked(sums.arrays["moment"][: symmetric.size(r)], r))
        values, vectors = signal(*found, symmetric.noise_edge(sigma, r))
        rows, factorize = float(shared.memory["rows"]), self.factorize
        return shared._replace(factor=twin.factor_of(shared, values, basis @ vectors, rows=rows, factorize=factorize))

    def bench(self, features: int) -> tuple[Ranged, None]:
        """One component, and a basis of all features."""
        return replace(self, rank=1, width=features, outliers=None), None

    def late(self, shared: Shared, t: int) -> tuple[Shared, ...]:
        """Centre the later rounds somewhere, with bounds that clip, for either of their moments."""
        states = self.means.late(shared, min(t, 1))
        return tuple(s._replace(extra={**s.extra, "short": np.float64(0.25)}) for s in states)

    def noise_over_signal(self, *, units: int, features: int, clients: int) -> float:
        """Edge of the noise of Y over what one of k equal components has in it."""
        return self._edge(features, clients) * self.rank / units

    def drowns(self, *, units: float, features: int, clients: float) -> bool:
        """Whether so few rows leave nothing of the second moment to be seen, so that only the mean is released."""
        return self._edge(features, clients) > SEEN * units

    def _edge(self, features: int, clients: float) -> float:
        r = min(self.width, features)
        return WIDE * self.planned(1, "range", clients) * (np.sqrt(features) + np.sqrt(r))

    def remark(self, shared: Shared) -> str:
        """Say that a factor knows the mean only; nothing where it knows more."""
        return self.means.remark(shared)


def ranged(
    rank: int,
    *,
    privacy: Privacy,
    factorize: Factorizer,
    width: int,
    outliers: float | None = None,
    parts: Parts = WHOLE,
) -> Ranged:
    """Return the method for a budget, with sketches of ``width`` columns."""
    shares = (first_shares(privacy), {"range": RANGE}, {"moment": 1 - MEAN - COUNT - RANGE})
    allowance = Allowance(privacy, shares, parts)
    return Ranged(rank, allowance, factorize, width, outliers=None if outliers is None else Outliers(outliers))
