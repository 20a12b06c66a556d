"""Model sharing: every client improves its own copy of the factor for some sweeps, the server merges them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from cofactor.combine.aggregators import Calmed, Mean, factors
from cofactor.combine.align import Lap, in_place, mean_drift, pull
from cofactor.local import arrays
from cofactor.local.sketch import Sketch, left
from cofactor.local.space import NonNegative, Space
from cofactor.local.stats import anchor, for_codes, for_factor, gain
from cofactor.local.updates import PGD
from cofactor.method import Traits, total
from cofactor.methods.client_level import ClientLevel, client_level
from cofactor.methods.refusals import no_private
from cofactor.privacy.allowance import Parts, Privacy
from cofactor.privacy.errors import PrivacyError
from cofactor.schedules import at
from cofactor.types import Aggregator, Array, Data, Local, Message, Shared, Stats, Update

ALIGN_EVERY = 10
RENEWED = 20
"""Updates of codes alone with which a client begins that has not seen the last factors."""


@dataclass(frozen=True)
class Averaged:
    """``sweeps`` updates of W and H at each client, then ``aggregator``: FNMF, FedAvg, FedProx and their kin.

    ``anchor`` is the FedProx weight ``mu/2 |H - Hb|^2``, relative to the mean diagonal of the gram.
    ``align`` (a schedule or an :class:`~cofactor.types.Align`) makes it FNMF: every ten sweeps the client
    pulls H to the aligned broadcast factor by ``gamma``, and its codes follow the alignment when a new
    factor arrives. ``aligned_upload`` aligns at the client, so that a mean of the uploads is enough (sums
    only). ``common_start=False`` starts every client at its own random factor, as the papers print it.
    ``count_sweeps`` gives the update the number of sweeps so far in the place of the round.
    ``rounds`` is the length of a schedule over rounds (None: it has none).
    ``codes_update`` is for the codes where they are not improved like the factor. ``sketch`` shrinks the rows in the
    half-problem of H to d random ones, drawn anew for every update and known to the client alone; the loss is then that
    of the sketched rows. ``codes_first=False`` updates H before W in every sweep. ``calm`` is rho of
    :class:`~cofactor.combine.aggregators.Calmed` where clients are absent; 0 is never calm.
    ``tells`` is whether a client may say that it has too few rows for a sketch: not where it is private.

    ``running`` is for relaxed Boolean factors where clients are absent (if ``recalls``): the regularizer makes bits of
    whatever the few of a round agree on. After the first round clients send the *change* of their factor, times their
    rows, and the mean is of what all have sent last; a client begins at the broadcast factor, with codes that it finds
    for it first: its own are of a factor of some rounds ago, and bits by now.
    """

    rank: int
    update: Update = field(default_factory=PGD)
    aggregator: Aggregator = field(default_factory=Mean)
    sweeps: int = 20
    anchor: float = 0.0
    align: Any = None
    gamma: float = 0.01
    aligned_upload: bool = False
    common_start: bool = True
    space: Space = field(default_factory=NonNegative)
    count_sweeps: bool = False
    sketch: Sketch | None = None
    codes_first: bool = True
    rounds: int | None = None
    codes_update: Update | None = None
    calm: float = 10.0
    tells: bool = True
    recalls: bool = True
    running: bool = False

    @cached_property
    def traits(self) -> Traits:
        """As the aggregator says; the factor a client learns is not a sum over its rows."""
        merge = self.aggregator
        kind, running = self.space.kind, self.running
        return Traits(kind, additive=merge.additive, streams=merge.streams, judged="factor", running=running)

    def partial(self) -> Self:
        """Absent clients are simply not in the mean, which the factor then follows less and less; Boolean: running."""
        if self.space.kind == "boolean":
            return replace(self, running=self.recalls)
        if self.calm == 0 or self.aggregator.streams:
            return self
        return replace(self, aggregator=Calmed(self.aggregator, self.calm), calm=0.0)

    def private(self, privacy: Privacy, *, rounds: int, parts: Parts) -> ClientLevel:
        """Clip and hide the update of each client as a whole, from one common start and without matching."""
        merge = self.aggregator.noisy()
        if merge is None:
            raise PrivacyError(no_private(self.traits.kind))
        # from a start of its own a client's update is all of its factor
        align = self.align if merge == self.aggregator else None
        method = replace(self, aggregator=merge, align=align, common_start=True, tells=False, recalls=False)
        return client_level(method, privacy, rounds=rounds, parts=parts)

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """What the aggregator needs, and ``loss``, the client's own objective."""
        return {**self.aggregator.schema(self.rank, n_features), "loss": ()}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at a random factor, or at a public one."""
        return Shared(self.space.first_factor(self.rank, n_features, rng) if factor is None else factor)

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Draw random codes, and a random factor where starts are independent; say so where there is no sketch."""
        if self.sketch and self.tells and self.sketch.draw(data.shape[0], self.rank, np.random.default_rng(0)) is None:
            warnings.warn(
                f"a client of {data.shape[0]} rows has too few of them for a sketch at rank {self.rank} (it takes more "
                f"than {4 * self.rank}): it works on all of its rows, as the method without a sketch does.",
                stacklevel=2,
            )
        H = shared.factor if self.common_start else self.space.first_factor(self.rank, data.shape[1], rng)
        H = H.astype(data.dtype)
        memory = {"factor": H, "begun": np.bool_(False), "square": np.float64(arrays.square(data))}
        return Local(self.space.first_codes(data, H, rng), {**memory, **self._told(False)})

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Improve (W, H) from the broadcast factor (the first time: from the client's own start)."""
        broadcast = shared.factor.astype(data.dtype, copy=False)
        align, recalled = at(self.align, t), self.running and t > 0
        mine, W = local.memory["factor"], local.codes
        if local.memory["begun"]:
            W = W if align is None else _follow(W, align(mine, broadcast))
        if local.memory["begun"] or recalled:
            mine = broadcast
        if recalled:
            W = self._renewed(data, W, broadcast)
        square = local.memory["square"]
        W, H, loss = self._improve(data, W, mine, broadcast, square=float(square), t=t, rng=rng)
        W, H = self.space.scale(W, H)
        sent = Lap()(broadcast, H) @ H if self.aligned_upload else H
        message = self.aggregator.message(W, sent.astype(data.dtype, copy=False))
        message.arrays["loss"] = np.float64(loss)
        if recalled:
            message = _change(message, H, local.memory["factor"] if local.memory["told"] else None, len(W))
        memory = {"factor": H, "begun": np.bool_(True), "square": square}
        return Local(W, {**memory, **self._told(recalled)}), message

    def _told(self, told: bool) -> dict[str, Any]:
        """Return what a client remembers of what it told, if that is asked for: whether its factor is in the sums."""
        return {"told": np.bool_(told)} if self.running else {}

    def _renewed(self, X: Data, W: Array, H: Array) -> Array:
        """Return codes for a factor from others, as if the schedule began."""
        stats, old = for_codes(X, H), None
        for _ in range(RENEWED):
            W, old = self.improve_codes(W, stats, 0, old), W
        return W

    def _improve(
        self, X: Data, W: Array, H: Array, Hb: Array, *, square: float, t: int, rng: np.random.Generator
    ) -> tuple[Array, Array, float]:
        """Run the sweeps: codes first, then the factor, pulled to the aligned broadcast now and then.

        ``square`` is ``|X|^2``, which takes as long as a product of some columns.
        """
        align = at(self.align, t)
        F, W_old, F_old = arrays.contiguous(H.T), None, None
        rows, stats = X, Stats(H, H)
        for s in range(self.sweeps):
            time = t * self.sweeps + s if self.count_sweeps else t
            if self.codes_first:
                W, W_old = self.improve_codes(W, for_codes(X, F.T), time, W_old), W
            rows, stats = self.factor_stats(X, W, rng)
            F, F_old = self.update(F, self._anchored(stats, Hb), time, F_old), F
            if self.gamma and align is not None and (s + 1) % ALIGN_EVERY == 0:
                F = arrays.contiguous(pull(F.T, Hb, align(F.T, Hb), self.gamma).T)
            if not self.codes_first:
                W, W_old = self.improve_codes(W, for_codes(X, F.T), time, W_old), W
        return W, F.T, 0.5 * (square if rows is X else arrays.square(rows)) + gain(stats, F)

    def improve_codes(self, W: Array, stats: Stats, t: int, previous: Array | None = None) -> Array:
        """Return better codes."""
        return (self.codes_update or self.update)(W, stats, t, previous)

    def factor_stats(self, X: Data, W: Array, rng: np.random.Generator) -> tuple[Data, Stats]:
        """Return the rows that the half-problem of H sees, X or ``S^T X`` (d x m), and its statistics."""
        S = self.sketch.draw(X.shape[0], self.rank, rng) if self.sketch else None
        if S is None:
            return X, for_factor(X, W)
        rows = left(S, X)
        return rows, for_factor(rows, left(S, W))

    def _anchored(self, stats: Stats, Hb: Array) -> Stats:
        if self.anchor == 0:
            return stats
        return anchor(stats, Hb.T, self.anchor * float(np.mean(np.diag(stats.gram))))

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Merge the factors; the drift is their mean distance to the result, components matched.

        Where a schedule has ended the matching, components have stayed where they were since: to match them anew for
        the drift alone would cost a product of the size of a client's for each of them, in every round.
        """
        loss = float(sum(m.arrays["loss"] for m in messages))
        if self.running and t > 0:
            return self._recalled(shared, total(messages), t)._replace(loss=loss)
        H = self.aggregator(messages, shared.factor, t)
        if self.aggregator.additive:
            return Shared(H, loss=loss)
        settled = self.align is not None and at(self.align, t) is None
        return Shared(H, loss=loss, drift=mean_drift(factors(messages), H, in_place if settled else None))

    def _recalled(self, shared: Shared, changes: Message, t: int) -> Shared:
        """Return the state with the factor of what all clients have sent last; before the first round it is nothing."""
        sums = shared.memory.get("sums", 0.0) + changes.arrays["factor"]
        rows = shared.memory.get("rows", 0.0) + changes.weight
        mean = Message({"factor": (sums / rows).astype(changes.dtypes["factor"])}, 1.0)
        return Shared(self.aggregator([mean], shared.factor, t), memory={"sums": sums, "rows": np.float64(rows)})

    def factor(self, shared: Shared) -> Array:
        """Return the merged factor."""
        return self.space.final(shared.factor)

    def refit(self, data: Data, factor: Array) -> Array:
        """Codes for the final factor."""
        return self.space.refit(data, factor)


def _change(message: Message, H: Array, told: Array | None, rows: int) -> Message:
    """Return the message of how the factor of so many rows has changed; they count when it is told first."""
    change = (H if told is None else H - told) * H.dtype.type(rows)
    return message._replace(arrays={**message.arrays, "factor": change}, weight=float(rows) if told is None else 0.0)


def _follow(W: Array, plan: Array) -> Array:
    """Reorder codes like the components: ``H_j ~ P H`` turns ``W H_j`` into ``(W P) H``."""
    return W @ plan.astype(W.dtype)
