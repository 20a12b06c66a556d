"""One upload: every client factorizes alone, the server merges once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np

from cofactor.combine.aggregators import factors
from cofactor.combine.align import mean_drift
from cofactor.local.brief import ROWS_PER_COMPONENT, measured
from cofactor.local.space import NonNegative, Space
from cofactor.method import Traits
from cofactor.methods.client_level import ClientLevel, client_level
from cofactor.methods.refusals import no_private
from cofactor.methods.wrapped import Wrapped
from cofactor.privacy.allowance import Parts, Privacy
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Aggregator, Align, Array, CofactorError, Data, Factorizer, Local, Message, Shared


@dataclass(frozen=True)
class OneShot:
    """Clients run ``factorize`` alone; the server merges their factors with ``aggregator``.

    With :class:`~cofactor.combine.aggregators.Union` these are mergeable summaries, with ``Mean`` the
    one-shot baselines of the FNMF paper. ``align`` makes the client match its components to the last shared
    factor before it uploads, so that a mean (sums only) will do; each of the ``passes`` is one such upload of
    the same H_j. ``local_rank`` is the rank r of the client's own factorization (default: the rank).
    """

    rank: int
    factorize: Factorizer
    aggregator: Aggregator
    local_rank: int | None = None
    align: Align | None = None
    passes: int = 1
    space: Space = field(default_factory=NonNegative)

    @property
    def rounds(self) -> int:
        """One, unless aligned uploads are repeated."""
        return self.passes

    @cached_property
    def traits(self) -> Traits:
        """As the aggregator says; a client's own factor (of this rank) is not a sum over its rows.

        Bits are factorized one by one, in memory.
        """
        kind, own = self.space.kind, self._local_rank == self.rank
        return Traits(kind, additive=self.aggregator.additive, own=own, in_memory=int(kind == "boolean"))

    @property
    def _local_rank(self) -> int:
        return self.local_rank or self.rank

    def partial(self) -> Self:
        """Absent clients are simply not in the mean."""
        return self

    def private(self, privacy: Privacy, *, rounds: int, parts: Parts) -> ClientLevel:
        """Hide the bits of each client as a whole where they are counted as votes; nothing else has a private form."""
        merge = self.aggregator.noisy()
        if merge is None or self.traits.kind != "boolean":
            raise PrivacyError(no_private(self.traits.kind))
        return client_level(replace(self, aggregator=merge), privacy, rounds=rounds, parts=parts, bits=True)

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """What the aggregator needs, and ``loss``, the client's own objective."""
        return {**self.aggregator.schema(self._local_rank, n_features), "loss": ()}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Draw a random factor, or take a public one: the common start of aligned uploads."""
        if factor is not None and self.align is None:
            raise CofactorError("a public start has no use where clients factorize alone; leave it out.")
        return Shared(self.space.first_factor(self.rank, n_features, rng) if factor is None else factor)

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Begin with nothing: the factorization belongs to the first step."""
        return Local(np.zeros((data.shape[0], 0)))

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Factorize (once) and upload; a client of fewer than two rows sends zeros."""
        known, W = local.memory, local.codes
        if not known:
            start = shared.factor if self.align else None
            W, H, loss = measured(self.factorize, data, self._local_rank, rng, start, space=self.space)
            known = {"factor": H, "loss": np.float64(loss)}
        H = known["factor"]
        sent = self.align(shared.factor, H) @ H if self.align else H
        message = self.aggregator.message(W, sent.astype(data.dtype, copy=False))
        message.arrays["loss"] = known["loss"]
        return Local(W, known), message

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Merge; the drift is the mean distance of the clients' factors to the result, components matched."""
        H = self.aggregator(messages, shared.factor, t)
        if self.aggregator.additive:
            return Shared(H, loss=_loss(messages))
        return Shared(H, loss=_loss(messages), drift=mean_drift(factors(messages), H[: self.rank]))

    def factor(self, shared: Shared) -> Array:
        """Return the merged factor."""
        return self.space.final(shared.factor)

    def refit(self, data: Data, factor: Array) -> Array:
        """Codes for the merged factor."""
        return self.space.refit(data, factor)


@dataclass(frozen=True)
class Summarized(Wrapped):
    """One upload of mergeable summaries; the server keeps what its search has told of the components.

    ``method`` is a :class:`OneShot` with a :class:`~cofactor.combine.aggregators.Union`. In the server's memory are
    the ``share`` of every component in what the summaries explain, and, of several clients, its ``stability`` over
    restarts; of a consensus the ``clustergram`` too. ``short`` counts clients with too few rows for a summary of as
    many components as the rank.

    Clients draw the same in every run, so that every seed gives the same components: how far others would be as good is
    what restarts tell, on the union.
    """

    @cached_property
    def traits(self) -> Traits:
        """As the method says, but for the seed."""
        return replace(super().traits, unseeded=1)

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Search the union; a federation of empty summaries keeps its factor."""
        kept, filled = _filled(messages)
        found = self.method.aggregator.search(kept)
        if found is None:
            return self.method.aggregate(shared, messages, t)
        order = np.argsort(-found.share, kind="stable")
        known = {"share": found.share, "silhouette": found.silhouette}
        if len(messages) > 1:  # restarts on what a single client found from one start know nothing of its others
            known["stability"] = found.stability
        memory = {name: a[order] for name, a in known.items() if a is not None}
        if found.clustergram is not None:
            memory["clustergram"] = found.clustergram
        memory["short"] = np.int64(sum(m.weight // ROWS_PER_COMPONENT < self.method.rank for m in messages))
        H = found.factor[order].astype(messages[0].arrays["factor"].dtype)
        new = Shared(H, memory=memory, loss=_loss(kept), drift=found.drift)
        if filled is None:
            return new
        whole = np.zeros((len(H), messages[0].arrays["factor"].shape[1]), H.dtype)
        whole[:, filled] = H
        return new._replace(factor=whole)


def _loss(messages: list[Message]) -> float:
    """Return what the clients miss alone."""
    return float(sum(m.arrays["loss"] for m in messages))


def _filled(messages: list[Message]) -> tuple[list[Message], Array | None]:
    """Return messages of those features that any factor has, and which they are, where they are less than half."""
    there = np.any([np.asarray(m.arrays["factor"]).any(axis=0) for m in messages], axis=0)
    if 2 * np.count_nonzero(there) > len(there):
        return messages, None
    index = np.flatnonzero(there)
    kept = [m._replace(arrays={**m.arrays, "factor": m.arrays["factor"][:, index]}) for m in messages]
    return kept, index
