"""Observed-entries factorization over clients: exact alternating least squares from sums, and FedMAvg.

Data are CSR: stored entries are observed, the rest is unknown. Factors are extended by biases and the mean (see
:mod:`cofactor.masked.halves`), so that a run's codes times its factor are predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from cofactor import masked
from cofactor.masked import Layout
from cofactor.method import Method, total
from cofactor.methods.fedmavg import Diminishing
from cofactor.schedules import at
from cofactor.types import Array, CofactorError, Data, Local, Message, Shared

EPSILON = 1e-12
SPREAD = 0.1
"""Deviation of the entries of a random start."""


@dataclass(frozen=True)
class MaskedALS:
    """Alternating ridge regressions: clients solve their codes, the server every item from summed statistics.

    Round 0 (with biases) finds the mean rating. In every later one a client sends for each item i that it may have
    rated the sums of ``v_u v_u^T`` and ``v_u (x_ui - b_u - mean)``, ``v_u = [w_u, 1]``: p(p+1)/2 + p numbers with
    p = k + 1. The result is the one of pooled ALS. ``changes=True`` is for rounds with absent clients: they stay in the
    server's running sums with what they sent last.
    """

    layout: Layout
    changes: bool = False

    rounds = None
    additive = True

    @property
    def rank(self) -> int:
        """The number of components k, biases not counted."""
        return self.layout.rank

    @property
    def warm_rounds(self) -> int:
        """One round for the mean where there are biases."""
        return int(self.layout.biases)

    def rowwise(self, t: int) -> bool:
        """All statistics add up over rows."""
        return True

    def partial(self) -> Self:
        """Send changes."""
        return replace(self, changes=True)

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``sum``, ``count``, ``square`` of the ratings; then ``gram``, ``cross`` per item and ``known``, a scalar."""
        if t < self.warm_rounds:
            return {"sum": (), "count": (), "square": ()}
        p = self.layout.free
        return {"gram": (n_features, p * (p + 1) // 2), "cross": (n_features, p), "known": ()}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at a small random factor, or at a public one."""
        return first_factor(self.layout, n_features, rng, factor)

    def join(self, data: Data, shared: Shared, rng: np.random.Generator) -> Local:
        """Codes that say nothing yet."""
        return first_codes(self.layout, data)

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Solve the codes for the broadcast factor; send the statistics, or how they changed."""
        if t < self.warm_rounds:
            return local, mean_message(data)
        H, fresh = shared.factor, local.memory["fresh"]
        W = masked.solve_codes(data, H, self.layout)
        sent = self._statistics(data, W, H)
        if self.changes and not fresh.all():
            old = self._statistics(masked.observed(data)[~fresh], local.codes[~fresh], H)
            sent = {name: sent[name] - old[name] for name in sent}
        arrays = {name: a.astype(data.dtype) for name, a in sent.items() if name != "known"}
        message = Message({**arrays, "known": np.float64(sent["known"])}, data.shape[0])
        return Local(W, {"fresh": np.zeros_like(fresh)}), message

    def _statistics(self, X: Data, W: Array, H: Array) -> dict[str, Any]:
        gram, cross = masked.column_stats(X, W, H, self.layout)
        known = 0.5 * masked.known_square(X, W, H, self.layout) + self.layout.penalty(W[:, self.layout.code_columns])
        return {"gram": gram, "cross": cross, "known": known}

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Solve every item; the loss is the ridge objective of all clients after that."""
        if t < self.warm_rounds:
            return with_mean(self.layout, shared, messages)
        sums = total(messages).arrays
        if self.changes and shared.memory:
            sums = {name: shared.memory[name] + a for name, a in sums.items()}
        stats = masked.ColumnStats(sums["gram"], sums["cross"])
        H, gain = masked.solve_factor(stats, shared.factor, self.layout)
        dtype = messages[0].arrays["cross"].dtype
        return Shared(H.astype(dtype), memory=sums if self.changes else {}, loss=float(sums["known"] + gain), drift=0.0)

    def factor(self, shared: Shared) -> Array:
        """Return the extended factor."""
        return shared.factor

    def refit(self, data: Data, factor: Array) -> Array:
        """Extended codes for the final factor."""
        return masked.solve_codes(data, factor, self.layout)


@dataclass(frozen=True)
class MaskedFedMAvg:
    """FedMAvg on the observed entries, every row a client of its own: local copies of the items, averaged per item.

    A row solves its codes exactly, then takes Q2 gradient steps (size ``1 / (gamma |v_u|^2)``) on its copy of the items
    that it rated. These move ``[h_i, c_i]`` along ``v_u = [w_u, 1]`` only, so they have a closed form: the share
    ``1 - (1 - 1/gamma)^Q2`` of the residual is explained. Copies are averaged per item over the rows that rated it,
    weighted by ``|v_u|^2``; the ridge takes part as one more row that votes for zero. Messages have p + 1 numbers per
    item.
    """

    layout: Layout
    factor_steps: Any = field(default_factory=Diminishing)
    gamma: float = 2.0

    rounds = None
    additive = True

    @property
    def rank(self) -> int:
        """The number of components k, biases not counted."""
        return self.layout.rank

    @property
    def warm_rounds(self) -> int:
        """One round for the mean where there are biases."""
        return int(self.layout.biases)

    def rowwise(self, t: int) -> bool:
        """Pulls add up over rows."""
        return True

    def partial(self) -> Self:
        """Absent clients are simply not in the mean."""
        return self

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``sum``, ``count``, ``square`` of the ratings; then ``pull`` per item, ``fresh`` and ``loss``."""
        if t < self.warm_rounds:
            return {"sum": (), "count": (), "square": ()}
        return {"pull": (n_features, self.layout.free + 1), "fresh": (), "loss": ()}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at a small random factor, or at a public one."""
        return first_factor(self.layout, n_features, rng, factor)

    def join(self, data: Data, shared: Shared, rng: np.random.Generator) -> Local:
        """Codes that say nothing yet."""
        return first_codes(self.layout, data)

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Solve the codes; send how far the rows pull their items, and how many rows are here for the first time."""
        if t < self.warm_rounds:
            return local, mean_message(data)
        H, fresh = shared.factor, local.memory["fresh"]
        W = masked.solve_codes(data, H, self.layout)
        loss = 0.5 * masked.residual_squares(data, W, H).sum() + self.layout.penalty(W[:, self.layout.code_columns])
        pull = masked.pulls(data, W, H, self.layout).astype(data.dtype)
        arrays = {"pull": pull, "fresh": np.float64(fresh.sum()), "loss": np.float64(loss)}
        return Local(W, {"fresh": np.zeros_like(fresh)}), Message(arrays, data.shape[0])

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Move every item by the mean of its pulls; the ridge counts as much as the share of rows that take part."""
        if t < self.warm_rounds:
            return with_mean(self.layout, shared, messages)
        sent, layout = total(messages), self.layout
        seen = shared.memory.get("seen", 0.0) + float(sent.arrays["fresh"])
        here = min(sent.weight / seen, 1.0)
        share = 1 - (1 - 1 / self.gamma) ** at(self.factor_steps, t - self.warm_rounds)
        H = shared.factor.astype(np.float64)
        F, pull = H[layout.factor_rows].T, sent.arrays["pull"]
        slope = pull[:, :-1] - here * layout.penalties * F
        damping = pull[:, -1:] + max(layout.penalties.max(), EPSILON)
        H[layout.factor_rows] = (F + share * slope / damping).T
        loss = float(sent.arrays["loss"]) + here * layout.penalty(F)
        dtype = messages[0].arrays["pull"].dtype
        return Shared(H.astype(dtype), memory={"seen": seen}, loss=loss)

    def factor(self, shared: Shared) -> Array:
        """Return the extended factor."""
        return shared.factor

    def refit(self, data: Data, factor: Array) -> Array:
        """Extended codes for the final factor."""
        return masked.solve_codes(data, factor, self.layout)


def first_codes(layout: Layout, data: Data) -> Local:
    """Client: codes that say nothing yet, every row new to the server."""
    n = masked.observed(data).shape[0]
    return Local(layout.empty_codes(n, data.dtype), {"fresh": np.ones(n, bool)})


def first_factor(layout: Layout, n_features: int, rng: np.random.Generator, factor: Array | None) -> Shared:
    """Server: small random entries, or a public factor; biases and mean at zero."""
    H = rng.normal(0, SPREAD, (layout.rank, n_features)) if factor is None else np.asarray(factor, np.float64)
    return Shared(layout.extend_factor(H))


def mean_message(data: Data) -> Message:
    """Client: the sums that make the mean rating."""
    values = masked.observed(data).data.astype(np.float64)
    sums = {"sum": values.sum(), "count": np.float64(len(values)), "square": np.square(values).sum()}
    return Message(sums, data.shape[0])


def with_mean(layout: Layout, shared: Shared, messages: list[Message]) -> Shared:
    """Server: put the mean rating into the factor; the loss is that of predicting it everywhere."""
    sums = total(messages).arrays
    mean = float(sums["sum"] / max(sums["count"], 1))
    H = layout.extend_factor(shared.factor[: layout.rank], mean)
    return Shared(H, loss=float(0.5 * (sums["square"] - sums["count"] * mean**2)), drift=0.0)


def exact_als(rank: int, *, biases: bool = True, ridge: float = 10.0, bias_ridge: float | None = None) -> MaskedALS:
    """Pooled alternating least squares on the observed entries, from sums of statistics per item.

    ``bias_ridge`` is half the ridge where it is not given.
    """
    return MaskedALS(layout(rank, biases=biases, ridge=ridge, bias_ridge=bias_ridge))


def masked_fedmavg(
    rank: int,
    *,
    factor_steps: int = 100,
    gamma: float = 2.0,
    biases: bool = True,
    ridge: float = 10.0,
    bias_ridge: float | None = None,
) -> MaskedFedMAvg:
    """FedMAvg on the observed entries (Wang et al. 2022), each row a client, averaged per item."""
    if not gamma >= 1:
        raise CofactorError(f"gamma must be at least 1. Found {gamma}.")
    held = layout(rank, biases=biases, ridge=ridge, bias_ridge=bias_ridge)
    return MaskedFedMAvg(held, Diminishing(factor_steps), gamma)


def layout(rank: int, *, biases: bool = True, ridge: float = 10.0, bias_ridge: float | None = None) -> Layout:
    """Return the layout of a biased model, its ridges checked."""
    for name, value in (("ridge", ridge), ("bias_ridge", bias_ridge)):
        if value is not None and not (np.isfinite(value) and value >= 0):
            raise CofactorError(f"{name} must be a number >= 0. Found {value}.")
    return Layout(rank, biases, float(ridge), float(ridge / 2 if bias_ridge is None else bias_ridge))


MASKED: dict[str, Callable[..., Method]] = {"exact-als": exact_als, "masked-fedmavg": masked_fedmavg}
