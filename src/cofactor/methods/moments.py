"""Private NMF from two moments: noisy mean, noisy centred second moment, and everything else is free.

What is computed from released numbers costs nothing more. The second moment of rows of norm 1 has sensitivity 1; around
the noisy mean, which is released first, rows are shorter, and clipped there to norm C it has sensitivity C^2: 0.08 for
faces, 0.6 for digits. Eigenvalues above the edge of the noise are kept and shrunk, and the server factorizes rows that
it draws from a Gaussian with these two moments, the *twin* of the data. Its factor is that of the data to a few
percent, since the objective of NMF with unconstrained codes depends on the second moment alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from cofactor.local import symmetric
from cofactor.local.outliers import Outliers
from cofactor.local.refit import refit
from cofactor.local.stats import normalize
from cofactor.method import total
from cofactor.methods.alone import Alone
from cofactor.methods.summed import Summed
from cofactor.privacy import bounded, clip
from cofactor.privacy.accountant import Unit
from cofactor.privacy.plan import Plan, Privacy
from cofactor.types import Array, CofactorError, Data, Local, Message, Shared

MEAN, COUNT = 0.10, 0.01
"""Shares of the budget; the moment gets the rest. Flat: from .05 to .2 the loss moves by 2 %."""
CLIP = 0.85
"""Centred rows are clipped at this multiple of their root mean square, which the released mean tells. Flat, too."""
SMALLEST = 0.05
WIDEST = 2048
"""Of more features than these only the ones with the largest mean enter the second moment."""
TWIN_ROWS, TWIN_ROUNDS = 4000, 300


@dataclass(frozen=True)
class Moments:
    """Round 0: sum of the rows and their count. Round 1: second moment around the mean (packed, sensitivity C^2).

    Of very many features only the ``widest`` with the largest released mean enter the second moment: noise grows with
    the square root of their number, and rare features have little to say. For the unit client every client sends means
    over its rows, which the same bounds hold for. ``outliers`` are taken out of the codes.
    """

    rank: int
    plan: Plan
    outliers: Outliers | None = None
    widest: int = WIDEST

    additive = True
    rounds = 2

    def rowwise(self, t: int) -> bool:
        """No: every client adds its own noise."""
        return False

    def partial(self) -> Self:
        """Absent clients are simply not in the sums."""
        return self

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``sum`` (m) and ``count``; then ``moment`` (packed)."""
        d = min(self.widest, n_features)
        shapes = {"sum": (n_features,), "count": (), "moment": (symmetric.size(d),)}
        return {name: shapes[name] for name in self.plan.shares[t]}

    def bounds(self, shared: Shared, t: int) -> dict[str, float]:
        """Sensitivity of every array of round t."""
        return dict.fromkeys(self.plan.shares[t], 1.0 if t == 0 else float(shared.extra["bound"]) ** 2)

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin with nothing: the factor is empty until the last round."""
        if factor is not None:
            raise CofactorError("dp-moments takes no start: its factor comes from two released moments alone.")
        chosen = np.arange(min(self.widest, n_features))
        extra = {"center": np.zeros(n_features), "bound": np.float64(1.0), "features": chosen}
        return Shared(np.zeros((self.rank, n_features)), extra, {"seed": np.int64(rng.integers(1 << 62))})

    def join(self, data: Data, shared: Shared, rng: np.random.Generator) -> Local:
        """Nothing to remember."""
        return Local(np.zeros((data.shape[0], 0)))

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Sum over the rows, each inside its bound, and add noise."""
        sums = self._first(data) if t == 0 else self._centred(data, shared)
        n = data.shape[0] if self.plan.privacy.unit is Unit.CLIENT else 1
        means = {name: a / n for name, a in sums.items()}
        return local, self.plan.release(t, means, self.bounds(shared, t), rng)

    def _first(self, data: Data) -> dict[str, Array]:
        found = {"sum": bounded.total(data, self.plan.privacy.clip), "count": np.asarray(float(data.shape[0]))}
        return {name: found[name] for name in self.plan.shares[0]}

    def _centred(self, data: Data, shared: Shared) -> dict[str, Array]:
        center, bound, chosen = (shared.extra[name] for name in ("center", "bound", "features"))
        moment = np.zeros((len(chosen), len(chosen)))
        for block in bounded.blocks(data, self.plan.privacy.clip, chosen if len(chosen) < len(center) else None):
            Y = clip.rows(block - center[chosen], float(bound))
            moment += Y.T @ Y
        return {"moment": symmetric.packed(moment)}

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Find the centre, or draw the twin and factorize it."""
        sums = total(messages)
        if t == 0:
            return self._open(shared, sums)
        twin, rng = self._twin(shared, sums), np.random.default_rng(int(shared.memory["seed"]))
        H = Alone(Summed(self.rank), TWIN_ROUNDS)(twin, self.rank, rng)[1]
        return shared._replace(factor=_spread(H.astype(np.float64), shared))

    def _open(self, shared: Shared, sums: Message) -> Shared:
        """Return the state with the mean, and with the clip that a mean of such length leaves for the centred rows.

        ``E |x - c|^2 = E |x|^2 - |c|^2`` with ``|x| <= 1``; the noise in ``|c|^2`` is taken out.
        """
        rows = max(float(sums.arrays.get("count", sums.weight)), 1.0)
        mean = sums.arrays["sum"] / rows
        sigma = self.plan.sigma(0, "sum", 1.0, sums.weight) / rows
        square = float(np.clip(mean @ mean - len(mean) * sigma**2, 0.0, 1.0))
        bound = max(CLIP * np.sqrt(1.0 - square), SMALLEST)
        chosen = np.sort(np.argsort(-mean, kind="stable")[: self.widest])
        extra = {"center": np.maximum(mean, 0.0), "bound": np.float64(bound), "features": chosen}
        return shared._replace(extra=extra, memory={**shared.memory, "rows": np.float64(rows)})

    def _twin(self, shared: Shared, sums: Message) -> Array:
        """Return rows from a Gaussian with the released mean and what of the moment stands out of the noise.

        Features outside the moment do not vary, so one column of the same norm, the last, stands for all of them.
        """
        chosen, rows = shared.extra["features"], float(shared.memory["rows"])
        sigma = self.plan.sigma(1, "moment", self.bounds(shared, 1)["moment"], sums.weight)
        values, vectors = np.linalg.eigh(symmetric.unpacked(sums.arrays["moment"], len(chosen)))
        values, vectors = signal(values, vectors, symmetric.noise_edge(sigma, len(chosen)))
        rng = np.random.default_rng([int(shared.memory["seed"]), 1])
        drawn = (rng.standard_normal((TWIN_ROWS, len(values))) * np.sqrt(values / rows)) @ vectors.T
        varying = np.maximum(shared.extra["center"][chosen] + drawn, 0.0)
        constant = np.full((TWIN_ROWS, 1), np.linalg.norm(_rest(shared)))
        return np.hstack([varying, constant]).astype(np.float32)

    def factor(self, shared: Shared) -> Array:
        """Return the factor of the twin."""
        return normalize(shared.factor)

    def refit(self, data: Data, factor: Array) -> Array:
        """Codes for the final factor, outliers aside: they stay at the client."""
        return refit(data, factor) if self.outliers is None else self.outliers.refit(data, factor)


def _rest(shared: Shared) -> Array:
    """Return the centre with zeros for the features of the second moment."""
    rest = shared.extra["center"].copy()
    rest[shared.extra["features"]] = 0.0
    return rest


def _spread(H: Array, shared: Shared) -> Array:
    """Return the factor of all features from that of the twin: columns that are multiples of one share its loadings."""
    rest = _rest(shared)
    spread = np.outer(H[:, -1], rest / max(np.linalg.norm(rest), 1e-300))
    spread[:, shared.extra["features"]] = H[:, :-1]
    return spread


def signal(values: Array, vectors: Array, edge: float) -> tuple[Array, Array]:
    """Return the eigenvalues above the edge of the noise (at least one), shrunk by what noise adds to them.

    A true eigenvalue v shows up at ``v + (edge/2)^2 / v`` (Benaych-Georges and Nadakuditi 2011); this is solved for v.
    """
    keep = values > edge
    keep[np.argmax(values)] = True
    found = np.maximum(values[keep], edge)
    return (found + np.sqrt(found**2 - edge**2)) / 2, vectors[:, keep]


def moments(rank: int, *, privacy: Privacy, outliers: float | None = None, parts: int = 1) -> Moments:
    """Private NMF by released moments: a noisy mean, a noisy centred second moment, the factor of their twin.

    ``outliers`` is the threshold, in units of an average entry of a row, above which a residual is kept out of codes.
    """
    plan = Plan(privacy, (_first(privacy), {"moment": 1 - MEAN - COUNT}), parts)
    return Moments(rank, plan, None if outliers is None else Outliers(outliers))


def _first(privacy: Privacy) -> dict[str, float]:
    """Release the mean, and for records their number; the number of clients is known to all."""
    return {"sum": MEAN, "count": COUNT} if privacy.unit is Unit.RECORD else {"sum": MEAN + COUNT}
