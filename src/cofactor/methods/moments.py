"""Private NMF from two moments: noisy mean, noisy centred second moment, and everything else is free.

What is computed from released numbers costs nothing more. The second moment of rows of norm 1 has sensitivity 1; around
the noisy mean, which is released first, rows are shorter, and clipped there to norm C it has sensitivity C^2: 0.08 for
faces, 0.6 for digits. Eigenvalues above the edge of the noise are kept and shrunk, and the server factorizes the twin
of the data (:mod:`cofactor.methods.twin`). With so few rows for so many features that hardly an eigenvalue could stand
out, the second round is spent on the mean as well, and the factor is made of pieces of what its noise leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cofactor.local import symmetric
from cofactor.local.outliers import Outliers
from cofactor.method import total
from cofactor.methods import twin
from cofactor.methods.released import Released
from cofactor.methods.shrunk import denoised, pieces
from cofactor.methods.twin import WIDEST
from cofactor.privacy import bounded
from cofactor.privacy.accountant import Unit
from cofactor.privacy.allowance import WHOLE, Allowance, Parts, Privacy
from cofactor.types import Array, CofactorError, Data, Factorizer, Message, Shared

MEAN, COUNT = 0.10, 0.01
"""Shares of the budget; the moment gets the rest. Flat: from .05 to .2 the loss moves by 2 %."""
CLIP = 0.85
"""Centred rows are clipped at this multiple of their root mean square, which the released mean tells. Flat, too."""
SMALLEST = 0.05
SEEN = 0.10
"""The second moment is released where the edge of its noise is below this share of the rows, for sensitivity 1.

Measured on 28 data sets: below .08 the twin was always the better factor, above .16 pieces of the mean. At .11 it was
too early for pictures with many features (CIFAR 2.3 % above the floor, pieces of the mean 25 % below it). The centred
moment has sensitivity C^2 and the trace ``n (C / CLIP)^2``, so that what decides is public: features, rows, noise.
"""
AROUND, NEAR = 1.3, 0.8
"""Rows are summed again around the mean, clipped at this multiple of their root mean square, if that is below NEAR."""
MEAN_ONLY = (
    "the second moment would have drowned in noise (about {rows:.0f} rows, {features} features): the whole budget was "
    "spent on the mean row, and the components are pieces of it and a constant row. They fit at least as well as the "
    "mean row and say nothing of how features vary together. More rows, fewer features, a larger epsilon{masks} would "
    "help."
)


@dataclass(frozen=True)
class Moments(Released):
    """Round 0: sum of the rows and their count. Round 1: second moment around the mean (packed, sensitivity C^2).

    Where that would be noise, round 1 is the sum of the rows around the mean (sensitivity C), in the same array: which
    of them it is follows from the released count, and neither the size of a message nor its cost tells.

    Of very many features only the ``widest`` with the largest released mean enter the second moment: noise grows with
    the square root of their number, and rare features have little to say.
    """

    factorize: Factorizer
    widest: int = WIDEST

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``sum`` (m) and ``count``; then ``moment`` (packed)."""
        d = min(self.widest, n_features)
        shapes = {"sum": (n_features,), "count": (), "moment": (max(symmetric.size(d), n_features),)}
        return {name: shapes[name] for name in self.allowance.shares[t]}

    def states(self, n_features: int) -> dict[str, tuple[int, ...]]:
        """Centre, bound, the features of the moment, and whether there is one."""
        return {"center": (n_features,), "features": (min(self.widest, n_features),), "bound": (), "second": ()}

    def bounds(self, shared: Shared, t: int) -> dict[str, float]:
        """Sensitivity of every array of round t."""
        bound = float(shared.extra["bound"])
        return dict.fromkeys(self.allowance.shares[t], 1.0 if t == 0 else bound**2 if shared.extra["second"] else bound)

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin with nothing: the factor is empty until the last round."""
        if factor is not None:
            raise CofactorError("dp-moments takes no start: its factor comes from two released moments alone.")
        shared = twin.opened(self.rank, n_features, self.widest, rng)
        return shared._replace(extra={**shared.extra, "bound": np.float64(1.0), "second": np.bool_(True)})

    def sums(self, data: Data, shared: Shared, t: int) -> dict[str, Array]:
        """The rows and their count; then what is around the mean."""
        return self.first(data) if t == 0 else self._centred(data, shared)

    def first(self, data: Data) -> dict[str, Array]:
        """Return the sum of the rows, and for records their number."""
        found = {"sum": bounded.total(data, self.allowance.privacy.clip), "count": np.asarray(float(data.shape[0]))}
        return {name: found[name] for name in self.allowance.shares[0]}

    def _centred(self, data: Data, shared: Shared) -> dict[str, Array]:
        if not shared.extra["second"]:
            return {"moment": self.in_room(self.sum_again(data, shared), shared)}
        center, bound, chosen = (shared.extra[name] for name in ("center", "bound", "features"))
        found = np.zeros((len(chosen), len(chosen)))
        for Y in bounded.around(data, self.allowance.privacy.clip, center, float(bound), chosen):
            found += Y.T @ Y
        return {"moment": self.in_room(symmetric.packed(found), shared)}

    def sum_again(self, data: Data, shared: Shared) -> Array:
        """Return the sum of the rows around the centre, each clipped to the bound (m)."""
        center, bound = shared.extra["center"], float(shared.extra["bound"])
        rows = bounded.around(data, self.allowance.privacy.clip, center, bound)
        return sum((Y.sum(axis=0) for Y in rows), np.zeros(len(center)))

    def in_room(self, values: Array, shared: Shared) -> Array:
        """Return values at the beginning of the array that the second message has, whatever it carries."""
        out = np.zeros(self.schema(len(shared.extra["center"]), 1)["moment"])
        out[: len(values)] = values
        return out

    def merge(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Find the centre, or draw the twin and factorize it."""
        sums = total(messages)
        if t == 0:
            return self.open(shared, sums)
        sigma = self.sigma(1, "moment", self.bounds(shared, 1)["moment"], sums)
        if not shared.extra["second"]:
            return self.mean_again(shared, sums.arrays["moment"][: len(shared.extra["center"])], sigma)
        d = len(shared.extra["features"])
        found = np.linalg.eigh(symmetric.unpacked(sums.arrays["moment"][: symmetric.size(d)], d))
        values, vectors = signal(*found, symmetric.noise_edge(sigma, d))
        return shared._replace(
            factor=twin.factor_of(shared, values, vectors, rows=float(shared.memory["rows"]), factorize=self.factorize)
        )

    def open(self, shared: Shared, sums: Message, *, drowned: bool | None = None) -> Shared:
        """Return the state with the mean, and with the clip that a mean of such length leaves for the centred rows.

        ``E |x - c|^2 = E |x|^2 - |c|^2`` with ``|x| <= 1``; the noise in ``|c|^2`` is taken out.
        """
        rows, m = self.rows(sums), len(sums.arrays["sum"])
        mean = sums.arrays["sum"] / rows
        sigma = self.sigma(0, "sum", 1.0, sums) / rows
        off = 2 * self.sigma(0, "count", 1.0, sums) if "count" in sums.arrays else 0.0
        memory = {**shared.memory, "rows": np.float64(rows)}
        if drowned is None:
            counted = float(sums.arrays.get("count", sums.weight))
            drowned = self.drowns(units=counted - off, features=m, clients=sums.weight)
        if drowned:
            return self.open_again(shared._replace(memory=memory), sums, off)
        square = float(np.clip(mean @ mean - m * sigma**2, 0.0, 1.0))
        bound = max(CLIP * np.sqrt(1.0 - square), SMALLEST)
        new = twin.centred(shared, mean, self.widest)
        return new._replace(extra={**new.extra, "bound": np.float64(bound)}, memory=memory)

    def rows(self, sums: Message) -> float:
        """Return how many rows there are, by the released count; at least as many as the length of their sum.

        A count that noise made too small gives a centre far beyond the rows, and a bound that cuts all of them off.
        """
        total_ = sums.arrays["sum"]
        if "count" not in sums.arrays:
            return max(sums.weight, 1.0)
        square = float(total_ @ total_) - len(total_) * self.sigma(0, "sum", 1.0, sums) ** 2
        return max(float(sums.arrays["count"]), float(np.sqrt(max(square, 1.0))))

    def open_again(self, shared: Shared, sums: Message, off: float) -> Shared:
        """Return the state in which rows are summed again, around what is known of the mean, if that makes them short.

        How short is estimated from the safe side: more rows than released by ``off``, a mean less long than seen.
        """
        total_, rows = sums.arrays["sum"], float(shared.memory["rows"])
        m, sigma = len(total_), self.sigma(0, "sum", 1.0, sums)
        least = (total_ @ total_ - sigma**2 * (m + 2 * np.sqrt(2 * m))) / (rows + off) ** 2
        bound = max(AROUND * np.sqrt(1.0 - np.clip(least, 0.0, 1.0)), SMALLEST)
        near = bound <= NEAR
        known = {"center": denoised(total_, sigma) / rows if near else np.zeros(m), "second": np.bool_(False)}
        extra = {**shared.extra, **known, "bound": np.float64(bound if near else 1.0)}
        return shared._replace(extra=extra, memory={**shared.memory, "sum": total_, "sigma": np.float64(sigma)})

    def mean_again(self, shared: Shared, again: Array, sigma: float) -> Shared:
        """Join both sums of the rows, by their known noise, and make the factor of pieces of what it leaves."""
        known, center = shared.memory, shared.extra["center"]
        precise = np.array([known["sigma"], sigma]) ** -2.0
        both = (precise[0] * known["sum"] + precise[1] * (again + known["rows"] * center)) / precise.sum()
        left = precise.sum() ** -0.5
        memory = {**known, "sum": both, "sigma": np.float64(left)}
        return shared._replace(factor=pieces(denoised(both, left), self.rank), memory=memory)

    def remark(self, shared: Shared) -> str:
        """Say that a factor knows the mean only; nothing where it knows more."""
        if shared.extra["second"]:
            return ""
        masks = "" if self.allowance.parts.least > 1 else ", or secure sums over several clients"
        return MEAN_ONLY.format(rows=float(shared.memory["rows"]), features=len(shared.extra["center"]), masks=masks)

    def bench(self, features: int) -> tuple[Moments, None]:
        """One component is enough: what is released does not depend on the rank."""
        return replace(self, rank=1, widest=features, outliers=None), None

    def late(self, shared: Shared, t: int) -> tuple[Shared, ...]:
        """Centre the second round somewhere, with a bound that clips, for either of its moments."""
        if t == 0:
            return (shared,)
        m = len(shared.extra["center"])
        extra = {**shared.extra, "center": np.full(m, 0.5 / np.sqrt(m)), "bound": np.float64(0.5)}
        return tuple(shared._replace(extra={**extra, "second": np.bool_(second)}) for second in (True, False))

    def noise_over_signal(self, *, units: int, features: int, clients: int) -> float:
        """Edge of the noise over ``n C^2 / k``, the eigenvalue of one of k equal components."""
        return self._edge(features, clients) * self.rank / units

    def drowns(self, *, units: float, features: int, clients: float) -> bool:
        """Whether so few rows leave nothing of the second moment to be seen, so that only the mean is released."""
        return self._edge(features, clients) > SEEN * units

    def _edge(self, features: int, clients: float) -> float:
        """Return the largest eigenvalue that noise makes in a moment of sensitivity 1."""
        return symmetric.noise_edge(self.planned(1, "moment", clients), min(features, self.widest))


def signal(values: Array, vectors: Array, edge: float) -> tuple[Array, Array]:
    """Return the eigenvalues above the edge of the noise (at least one), shrunk by what noise adds to them.

    A true eigenvalue v shows up at ``v + (edge/2)^2 / v`` (Benaych-Georges and Nadakuditi 2011); this is solved for v.
    """
    keep = values > edge
    keep[np.argmax(values)] = True
    found = np.maximum(values[keep], edge)
    return (found + np.sqrt(found**2 - edge**2)) / 2, vectors[:, keep]


def moments(
    rank: int, *, privacy: Privacy, factorize: Factorizer, outliers: float | None = None, parts: Parts = WHOLE
) -> Moments:
    """Return the method for a budget; ``factorize`` finds the factor of the twin.

    ``outliers`` is the threshold, in units of an average entry of a row, above which a residual is kept out of codes.
    """
    allowance = Allowance(privacy, (first_shares(privacy), {"moment": 1 - MEAN - COUNT}), parts)
    return Moments(rank, allowance, factorize, outliers=None if outliers is None else Outliers(outliers))


def first_shares(privacy: Privacy) -> dict[str, float]:
    """Release the mean, and for records their number; the number of clients is known to all."""
    return {"sum": MEAN, "count": COUNT} if privacy.unit is Unit.RECORD else {"sum": MEAN + COUNT}
