"""Aggregators of Boolean factors: proximal mean, ballots (vote, rounded mean, OR), and the union of summaries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cofactor.boolean.bits import pack, product, unpack
from cofactor.boolean.cover import greedy_refit
from cofactor.boolean.elbmf import DEFAULT, Relaxation
from cofactor.boolean.prox import lam_at
from cofactor.combine.aggregators import factors
from cofactor.combine.align import Lap, cost
from cofactor.combine.barycenter import aligned_mean
from cofactor.method import total
from cofactor.schedules import at
from cofactor.types import Align, Array, Factorizer, Message

PASSES = 10
STARTS = 8
"""Of how many clients (the heaviest) the factor is tried as the first centre of an alignment."""


@dataclass(frozen=True)
class ProximalMean:
    """The paper FELB's server: mean of the relaxed factors, then the clients' prox at ``lambda_t``.

    ``steps`` are the local steps of a round, which t of the rate counts. ``align`` (a schedule or an alignment)
    matches components before the mean; without it sums are enough.
    """

    params: Relaxation = DEFAULT
    steps: int = 10
    align: Any = None
    streams = False

    def noisy(self) -> ProximalMean:
        """Return the mean without matching, which noise would lead astray."""
        return replace(self, align=None)

    @property
    def additive(self) -> bool:
        """Only without alignment."""
        return self.align is None

    def schema(self, rank: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """``factor`` (k x m), times the weight where sums are enough."""
        return {"factor": (rank, n_features)}

    def message(self, W: Array, H: Array) -> Message:
        """Client: the relaxed factor and its rows as the weight."""
        weight = float(len(W))
        return Message({"factor": H * H.dtype.type(weight) if self.additive else H}, weight)

    def __call__(self, messages: list[Message], current: Array, t: int) -> Array:
        """Return the prox of the (aligned) weighted mean."""
        mean = self._mean(messages, current, t).astype(messages[0].dtype("factor"))
        lam = lam_at((t + 1) * self.steps - 1, self.params.lam, rate=self.params.rate)
        return self.params.prox(mean, self.params.kappa, lam)

    def _mean(self, messages: list[Message], current: Array, t: int) -> Array:
        if self.additive:
            sums = total(messages)
            return sums.arrays["factor"] / sums.weight
        weights = np.array([m.weight for m in messages])
        align = at(self.align, t)
        if align is None:
            return np.average(factors(messages), axis=0, weights=weights)
        # before the first mean the shared factor is random and says nothing
        return aligned_from(factors(messages), weights, None if t == 0 else current, align=align)


def majority(share: Array) -> Array:
    """At least half of the clients have the bit: a tie is a one (paper FELB, eq. 7)."""
    return share >= 0.5


def rounded(share: Array) -> Array:
    """The mean rounded half to even: a tie is a zero (paper FELB, eq. 6)."""
    return np.rint(share) > 0


def either(share: Array) -> Array:
    """Some client has the bit: logical OR (paper FELB, eq. 8)."""
    return share > 0


@dataclass(frozen=True)
class Ballot:
    """Every client has one vote for each bit of H; ``rule`` turns the share of ones into a bit.

    With ``align`` the components are matched first (Hungarian on the Hamming distance), see :func:`aligned_from`.
    """

    rule: Callable[[Array], Array] = majority
    align: Align | None = None
    streams = False

    def noisy(self) -> Ballot:
        """Return the count of votes without matching: noisy bits can be counted, not matched."""
        return replace(self, align=None)

    @property
    def additive(self) -> bool:
        """Only without alignment."""
        return self.align is None

    def schema(self, rank: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """``factor`` (k x m bits)."""
        return {"factor": (rank, n_features)}

    def message(self, W: Array, H: Array) -> Message:
        """Client: its Boolean factor."""
        return Message({"factor": H.astype(np.uint8)}, 1.0)

    def __call__(self, messages: list[Message], current: Array, t: int) -> Array:
        """Return the elected factor (uint8)."""
        if self.align is None:
            sums = total(messages)
            return self.rule(sums.arrays["factor"] / sums.weight).astype(np.uint8)
        share = aligned_from(factors(messages), np.ones(len(messages)), None, align=self.align)
        return self.rule(share).astype(np.uint8)


@dataclass(frozen=True)
class BooleanUnion:
    """Factorize the union of the clients' components, each as often as it is used (ours).

    Component l of client j enters ``max(1, copies usage / n_j)`` times; of the candidates ``solve`` the factor
    with the fewest errors, weighted by the usage counts, wins. Where no client found a component, H is empty.
    """

    rank: int
    solve: tuple[Factorizer, ...]
    copies: int = 30
    additive = False
    streams = False

    def noisy(self) -> None:
        """There is none: usage counts have no bound."""

    def schema(self, rank: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """``factor`` (r x m bits) and ``usage`` (r), how many rows of the client use each component."""
        return {"factor": (rank, n_features), "usage": (rank,)}

    def message(self, W: Array, H: Array) -> Message:
        """Client: its Boolean factor and the usage counts."""
        usage = np.count_nonzero(W, axis=0).astype(np.int64)
        return Message({"factor": H.astype(np.uint8), "usage": usage}, float(len(W)))

    def __call__(self, messages: list[Message], current: Array, t: int) -> Array:
        """Return the best factor of the union (uint8)."""
        rows = np.vstack(factors(messages))
        usage = np.concatenate([m.arrays["usage"] for m in messages])
        share = np.concatenate([m.arrays["usage"] / m.weight for m in messages])
        found = rows.any(axis=1) & (usage > 0)
        rows, usage, share = rows[found], usage[found], share[found]
        if len(rows) == 0:
            return np.zeros(current.shape, np.uint8)
        stack = np.repeat(rows, np.maximum(1, np.rint(self.copies * share)).astype(int), axis=0)
        tried = [self._solve(stack, solve, seed) for seed, solve in enumerate(self.solve)]
        return min(tried, key=lambda H: float(usage @ _row_errors(rows, H)))

    def _solve(self, stack: Array, solve: Factorizer, seed: int) -> Array:
        H = np.zeros((self.rank, stack.shape[1]), np.uint8)
        r = min(self.rank, *stack.shape)
        H[:r] = solve(stack, r, np.random.default_rng(seed))[1]
        return H


def _row_errors(X: Array, H: Array) -> Array:
    """Errors of every row under its greedy cover by H."""
    return np.count_nonzero(unpack(product(greedy_refit(X, H), pack(H))) != X, axis=1)


def aligned_from(Hs: list[Array], weights: Array, center: Array | None, *, align: Align) -> Array:
    """Return the weighted mean of factors matched to a centre, or without one to the best of several clients' factors.

    One start is not enough: of 128 clients a wrong first match is never undone, and the mean loses a component.
    """
    if center is not None:
        return _settle(Hs, weights, center, align)
    tried = [_settle(Hs, weights, Hs[i], align) for i in np.argsort(-weights, kind="stable")[:STARTS]]
    return min(tried, key=lambda H: sum(w * _distance(H, Hj) for w, Hj in zip(weights, Hs)))


def _settle(Hs: list[Array], weights: Array, center: Array, align: Align) -> Array:
    """Match to the centre, then to the mean, until no plan changes."""
    plans: list[Array] = []
    for _ in range(PASSES):
        new = [align(center, H) for H in Hs]
        if plans and all(np.array_equal(P, Q) for P, Q in zip(plans, new, strict=True)):
            break
        plans, center = new, aligned_mean(center, Hs, weights, new)
    return center


def _distance(H: Array, other: Array) -> float:
    return float((Lap()(H, other) * cost(H, other)).sum())


def catalog() -> dict[str, Any]:
    """Return every rule of a ballot by name."""
    return {"vote": majority, "round": rounded, "or": either}
