"""Aggregators of Boolean factors: proximal mean, ballots (vote, rounded mean, OR), and the union of summaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from cofactor.boolean.asso import TAUS, association, candidates, cover, enough
from cofactor.boolean.bits import Bits, pack, row_errors
from cofactor.boolean.cover import greedy_refit
from cofactor.boolean.elbmf import DEFAULT, Relaxation, factorize
from cofactor.boolean.prox import lam_at
from cofactor.boolean.sweeps import polish
from cofactor.combine.aggregators import factors
from cofactor.combine.align import matched_cost
from cofactor.combine.barycenter import aligned_mean, weighted_mean
from cofactor.local.placed import to_host
from cofactor.local.threads import each
from cofactor.method import total
from cofactor.schedules import at
from cofactor.types import Align, Array, Message

PASSES = 10
POWER = 0.7
CLOSE = 0.06
"""Which share of errors on the union says nothing about the errors on the rows."""
DRAWN = 500
"""Rows that are drawn, as clients may have them."""
TOP, CELLS = 0.3, 300_000
"""Where a relaxation of them starts, and up to how many cells of both factors it is tried: it takes many steps."""
STARTS = 8
"""Of how many clients (the heaviest) the factor is tried as the first centre of an alignment."""


class Matching:
    """The base of aggregators that match components (``align``), and for which sums are enough where they do not."""

    align: Any
    streams = False

    def noisy(self) -> Self:
        """Return it without matching: noise would lead that astray."""
        return replace(self, align=None)  # type: ignore[type-var]

    @property
    def additive(self) -> bool:
        """Only without alignment."""
        return self.align is None

    def schema(self, rank: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """``factor`` (k x m)."""
        return {"factor": (rank, n_features)}


@dataclass(frozen=True)
class ProximalMean(Matching):
    """The paper FELB's server: mean of the relaxed factors, then the clients' prox at ``lambda_t``.

    ``steps`` are the local steps of a round, which t of the rate counts. ``align`` (a schedule or an alignment)
    matches components before the mean; without it sums are enough.
    """

    params: Relaxation = DEFAULT
    steps: int = 10
    align: Any = None

    def message(self, W: Array, H: Array) -> Message:
        """Client: the relaxed factor, times the weight where sums are enough, and its rows as the weight."""
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
            return weighted_mean(factors(messages), weights)
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
class Ballot(Matching):
    """Every client has one vote for each bit of H; ``rule`` turns the share of ones into a bit.

    With ``align`` the components are matched first (Hungarian on the Hamming distance), see :func:`aligned_from`.
    """

    rule: Callable[[Array], Array] = majority
    align: Align | None = None

    def message(self, W: Array, H: Array) -> Message:
        """Client: its Boolean factor, from wherever it is: it is merged in memory."""
        return Message({"factor": to_host(H).astype(np.uint8)}, 1.0)

    def __call__(self, messages: list[Message], current: Array, t: int) -> Array:
        """Return the elected factor (uint8)."""
        if self.align is None:
            sums = total(messages)
            return self.rule(sums.arrays["factor"] / sums.weight).astype(np.uint8)
        share = aligned_from(factors(messages), np.ones(len(messages)), None, align=self.align)
        return self.rule(share).astype(np.uint8)


@dataclass(frozen=True)
class BooleanUnion:
    """Factorize the union of the clients' components, each weighted by how many rows use it (ours).

    Tried are greedy covers of the union by ASSO's candidates and by the components themselves; the best has the fewest
    weighted errors. Weights are the usage counts to the power .7: by the counts themselves a tile that few rows have is
    worth less than the noise around a large one (4 of 8 sorted plantings are missed), and by their roots words that
    many rows share count too little. A ``shortlist`` stacks several factors (shortlist k x m), a quarter each by these
    weights, by the counts, own ones of clients, and of rows that are drawn by the counts: only the clients can say
    which one fits the rows, because a usage count does not say which components a row uses together. Where no client
    found a component, H is empty.
    """

    rank: int
    shortlist: int = 1
    additive = False
    streams = False

    def noisy(self) -> None:
        """There is none: usage counts have no bound."""

    def schema(self, rank: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """``factor`` (r x m bits) and ``usage`` (r), how many rows of the client use each component."""
        return {"factor": (rank, n_features), "usage": (rank,)}

    def message(self, W: Array, H: Array) -> Message:
        """Client: its Boolean factor and the usage counts, from wherever they are: they are merged in memory."""
        usage = np.count_nonzero(to_host(W), axis=0).astype(np.int64)
        return Message({"factor": to_host(H).astype(np.uint8), "usage": usage}, float(len(W)))

    def __call__(self, messages: list[Message], current: Array, t: int) -> Array:
        """Return the best factors of the union (uint8), the best first."""
        rows = np.vstack(factors(messages))
        usage = np.concatenate([m.arrays["usage"] for m in messages]).astype(np.int64)
        found = rows.any(axis=1) & (usage > 0)
        if not found.any():
            return np.zeros((self.shortlist * self.rank, rows.shape[1]), np.uint8)
        rows, usage = sparse.csr_array(rows[found]), usage[found]
        tempered, plain = Union(rows, np.rint(10 * usage**POWER).astype(np.int64)), Union(rows, usage)
        best = tempered.ranked(tempered.covers(self.rank))
        if self.shortlist > 1:
            mixed, part = _drawn(messages), self.shortlist // 4
            own, other = plain.ranked(self._own(messages)), plain.ranked(plain.covers(self.rank))
            drawn = [*mixed.relaxed(self.rank), *mixed.ranked(mixed.covers(self.rank))]
            best = [*best[:part], *other[:part], *own[:part], *drawn[:part], *best[part:], *other[part:]]
        best = best[: self.shortlist]
        return np.vstack([_padded(H, self.rank) for H in (*best, *best[:1] * (self.shortlist - len(best)))])

    def _own(self, messages: list[Message]) -> list[Array]:
        """Return the factors of the heaviest clients, the k most used components of each."""
        heavy = sorted(messages, key=lambda m: -m.weight)[:STARTS]
        tops = [np.sort(np.argsort(-m.arrays["usage"], kind="stable")[: self.rank]) for m in heavy]
        return [m.arrays["factor"][top] for m, top in zip(heavy, tops, strict=True)]


class Union(NamedTuple):
    """Components of all clients (r x m, sparse) and how much each counts."""

    rows: Any
    usage: Array

    def covers(self, rank: int) -> list[Array]:
        """Return greedy factors: for every threshold of ASSO, and of the components themselves."""
        bits, confidence = pack(self.rows), association(self.rows, self.usage, least=min(TAUS))

        def tried(tau: float | None) -> Array:
            if tau is None:
                basis, keep = Bits(np.unique(bits.words, axis=0), bits.shape), None
            else:
                basis, keep = candidates(confidence, tau), enough(rank)
            W, H = cover(bits, basis, rank, usage=self.usage, keep=keep)
            return polish(bits, H, codes=W, usage=self.usage)[1]

        return list(each(tried, [*TAUS, None]))

    def relaxed(self, rank: int) -> list[Array]:
        """Return factors of two relaxations (ELBMF), where they are small: they find what greedy covers do not."""
        if len(self.usage) == 0 or sum(self.rows.shape) * rank > CELLS:
            return []

        def tried(seed: int) -> Array:
            W, H = factorize(self.rows, rank, np.random.default_rng(seed), top=TOP)
            return polish(self.rows, H, codes=W)[1]

        return list(each(tried, range(2)))

    def ranked(self, Hs: list[Array]) -> list[Array]:
        """Return the distinct factors, best first: by weighted errors, and by agreement where these are close.

        Errors within the share ``CLOSE`` of the lowest say nothing about the rows; that several ways led to one factor
        does.
        """
        bits, seen = pack(self.rows), Counter(_name(H) for H in Hs)
        distinct = list({_name(H): H for H in Hs}.values())
        errors: Array = np.array(
            list(each(lambda H: self.usage @ row_errors(bits, greedy_refit(bits, H), H), distinct))
        )
        far = errors > (1 + CLOSE) * errors.min()
        agreed = np.array([0 if f else -seen[_name(H)] for f, H in zip(far, distinct)])
        order = np.lexsort((errors, agreed, far))
        return [distinct[i] for i in order]


def _drawn(messages: list[Message]) -> Union:
    """Return rows as clients may have them: every component in as many as its usage says, each drawn by itself."""
    rng, rows, n = np.random.default_rng(0), [], sum(m.weight for m in messages)
    for message in messages:
        H, weight = message.arrays["factor"], message.weight
        count = max(1, round(DRAWN * weight / n))
        often = np.rint(message.arrays["usage"] * (count / max(weight, 1.0)))
        codes = rng.permuted(np.tile(np.arange(count), (len(H), 1)), axis=1) < often[:, None]
        rows.append((codes.T.astype(np.float32) @ H > 0).astype(np.uint8))
    whole = np.vstack(rows)
    whole = whole[whole.any(axis=1)]
    return Union(sparse.csr_array(whole), np.ones(len(whole), np.int64))


def _name(H: Array) -> bytes:
    """Return the same bytes for factors that differ in the order of their components only."""
    return b"".join(sorted(row.tobytes() for row in np.packbits(H, axis=1)))


def _padded(H: Array, rank: int) -> Array:
    """Return H (k x m) with empty components where it has too few."""
    return np.vstack([H, np.zeros((rank - len(H), H.shape[1]), H.dtype)]).astype(np.uint8)


def aligned_from(Hs: list[Array], weights: Array, center: Array | None, *, align: Align) -> Array:
    """Return the weighted mean of factors matched to a centre, or without one to the best of several clients' factors.

    One start is not enough: of 128 clients a wrong first match is never undone, and the mean loses a component.
    """
    Hs = [H.astype(np.float64, copy=False) for H in Hs]
    if center is not None:
        return _settle(Hs, weights, center, align)
    tried = [_settle(Hs, weights, Hs[i], align) for i in np.argsort(-weights, kind="stable")[:STARTS]]
    return min(tried, key=lambda H: float(weights @ list(each(partial(matched_cost, H), Hs))))


def _settle(Hs: list[Array], weights: Array, center: Array, align: Align) -> Array:
    """Match to the centre, then to the mean, until no plan changes."""
    plans: list[Array] = []
    for _ in range(PASSES):
        new = list(each(partial(align, center), Hs))
        if plans and all(np.array_equal(P, Q) for P, Q in zip(plans, new, strict=True)):
            break
        plans, center = new, aligned_mean(center, Hs, weights, new)
    return center


def catalog() -> dict[str, Any]:
    """Return every rule of a ballot by name."""
    return {"vote": majority, "round": rounded, "or": either}
