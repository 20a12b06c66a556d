"""Observed-entries factorization over clients: exact alternating least squares from sums, and FedMAvg.

Data are CSR: stored entries are observed, the rest is unknown, or of little weight with implicit feedback. Factors are
extended by biases and the mean (see :mod:`cofactor.ratings.halves`), so that a run's codes times its factor are
predictions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np

from cofactor.method import Method, Traits, total
from cofactor.methods.fedmavg import Diminishing
from cofactor.methods.rated_only import RatedOnly
from cofactor.methods.refusals import no_private
from cofactor.privacy.errors import PrivacyError
from cofactor.ratings import Layout, observed, solve_codes
from cofactor.ratings.items import Items, Pulled, Solved
from cofactor.types import Array, CofactorError, Data, Local, Message, Shared

SPREAD = 0.1
"""Deviation of the entries of a random start."""


@dataclass(frozen=True)
class Masked:
    """Codes solved by their own rows; items by what ``items`` says: exactly from sums, or averaged.

    Round 0 (with biases) finds the mean rating. Every later one solves the codes for the broadcast factor and moves the
    items.
    """

    layout: Layout
    items: Items

    rounds = None

    @property
    def rank(self) -> int:
        """The number of components k, biases not counted."""
        return self.layout.rank

    @cached_property
    def traits(self) -> Traits:
        """All that is sent adds up over rows; one round for the mean where there are biases."""
        stages = (0, 1) if self.layout.biases else (0,)
        judged, running = self.items.judged, self.items.running
        return Traits("ratings", additive=True, rowwise=0, running=running, judged=judged, stages=stages)

    @property
    def _first(self) -> int:
        """The first round of the items."""
        return self.traits.stages[-1]

    def partial(self) -> Self:
        """Let the items be found with clients absent."""
        return replace(self, items=self.items.partial())

    def private(self, privacy: Any, *, rounds: int, parts: Any) -> NoReturn:
        """Refuse."""
        raise PrivacyError(no_private(self.traits.kind))

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``sum``, ``count``, ``square`` of the ratings; then what the items need."""
        if t < self._first:
            return {"sum": (), "count": (), "square": ()}
        return self.items.schema(self.layout, n_features)

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at small random entries, or at a public factor; biases and mean are zero."""
        H = rng.normal(0, SPREAD, (self.rank, n_features)) if factor is None else np.asarray(factor, np.float64)
        return Shared(self.layout.extend_factor(H))

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Codes that say nothing yet, every row new to the server."""
        n = observed(data).shape[0]
        return Local(self.layout.empty_codes(n, data.dtype), {"fresh": np.ones(n, bool)})

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Solve the codes for the broadcast factor; send what the items need of them."""
        if t < self._first:
            return local, _mean_message(data)
        W = solve_codes(data, shared.factor, self.layout)
        sent = self.items.send(data, W, shared.factor, local, self.layout)
        arrays = {name: a.astype(data.dtype) if a.ndim else a for name, a in sent.items()}
        return Local(W, {"fresh": np.zeros_like(local.memory["fresh"])}), Message(arrays, data.shape[0])

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Put the mean into the factor; later move the items."""
        sent = total(messages)
        if t < self._first:
            return self._with_mean(shared, sent)
        new = self.items.move(shared, sent, self.layout, t - self._first)
        dtype = np.result_type(*(sent.dtype(name) for name, a in sent.arrays.items() if np.ndim(a)))
        return new._replace(factor=new.factor.astype(dtype))

    def _with_mean(self, shared: Shared, sent: Message) -> Shared:
        """Return the factor with the mean rating; the loss is that of predicting it everywhere."""
        sums = sent.arrays
        mean = float(sums["sum"] / max(sums["count"], 1))
        H = self.layout.extend_factor(shared.factor[: self.rank], mean)
        return Shared(H, loss=float(0.5 * (sums["square"] - sums["count"] * mean**2)), drift=0.0)

    def factor(self, shared: Shared) -> Array:
        """Return the extended factor."""
        return shared.factor

    def refit(self, data: Data, factor: Array) -> Array:
        """Extended codes for the final factor."""
        return solve_codes(data, factor, self.layout)


def _mean_message(data: Data) -> Message:
    """Client: the sums that make the mean rating."""
    values = observed(data).data.astype(np.float64)
    sums = {"sum": values.sum(), "count": np.float64(len(values)), "square": np.square(values).sum()}
    return Message(sums, data.shape[0])


def exact_als(
    rank: int,
    *,
    biases: bool | None = None,
    ridge: float = 10.0,
    bias_ridge: float | None = None,
    alpha: float | None = None,
    rated_only: bool = False,
) -> Method:
    """Pooled alternating least squares on the observed entries, from sums of statistics per item.

    ``bias_ridge`` is half the ridge where it is not given. ``alpha`` is for implicit feedback, which has no biases (Hu,
    Koren and Volinsky 2008): confidence ``1 + alpha x`` where x was observed, 1 in a zero elsewhere. ``rated_only``
    makes messages of the rated items alone, which name them (:mod:`cofactor.methods.rated_only`).
    """
    held = _layout(rank, biases=biases, ridge=ridge, bias_ridge=bias_ridge, alpha=alpha)
    return _sent(Masked(held, Solved()), rated_only=rated_only)


def masked_fedmavg(
    rank: int,
    *,
    factor_steps: int = 100,
    gamma: float = 2.0,
    biases: bool | None = None,
    ridge: float = 10.0,
    bias_ridge: float | None = None,
    alpha: float | None = None,
    rated_only: bool = False,
) -> Method:
    """FedMAvg on the observed entries (Wang et al. 2022), each row a client, averaged per item.

    The other options are those of ``exact-als``.
    """
    if not gamma >= 1:
        raise CofactorError(f"gamma must be at least 1. Found {gamma}.")
    held = _layout(rank, biases=biases, ridge=ridge, bias_ridge=bias_ridge, alpha=alpha)
    return _sent(Masked(held, Pulled(Diminishing(factor_steps), gamma)), rated_only=rated_only)


def _sent(method: Masked, *, rated_only: bool) -> Method:
    """Return the method, or its form that sends rated items only."""
    if rated_only and method.layout.implicit:
        raise CofactorError(
            "rated_only: of implicit feedback (alpha) every item counts, rated or not. Found True; leave it out."
        )
    return RatedOnly(method) if rated_only else method


def _layout(rank: int, *, biases: bool | None, ridge: float, bias_ridge: float | None, alpha: float | None) -> Layout:
    """Return the layout of the options, checked."""
    for name, value in (("ridge", ridge), ("bias_ridge", bias_ridge)):
        if value is not None and not (np.isfinite(value) and value >= 0):
            raise CofactorError(f"{name} must be a number >= 0. Found {value}.")
    if alpha is not None and not (np.isfinite(alpha) and alpha > 0):
        raise CofactorError(f"alpha must be a number > 0. Found {alpha}.")
    if biases and alpha is not None:
        raise CofactorError("biases: implicit feedback (alpha) has none. Found biases=True; leave it out.")
    with_biases = alpha is None if biases is None else biases
    held = float(ridge / 2 if bias_ridge is None else bias_ridge)
    return Layout(rank, with_biases, float(ridge), held, None if alpha is None else float(alpha))
