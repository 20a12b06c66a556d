"""Exact federated NMF by summed statistics: identical to HALS on the pooled rows, without pooling them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from cofactor.local.columns import columns_of
from cofactor.local.half_steps import NEGLIGIBLE, improve_codes, improve_factor, improve_together, unseen
from cofactor.local.kernels import toys
from cofactor.local.penalties import UNPENALIZED, Penalties
from cofactor.local.refit import SOLVE
from cofactor.local.space import NonNegative, Space
from cofactor.local.stats import for_codes
from cofactor.local.updates import HALS
from cofactor.method import Method, Traits, total
from cofactor.methods.alone import Alone
from cofactor.methods.moments import moments
from cofactor.methods.refusals import no_private
from cofactor.methods.twin import ROUNDS
from cofactor.privacy.allowance import Parts, Privacy
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Array, Data, Local, Message, Shared, Stats, Update

GROW, SHRINK = 1.05, 1.5
SWEEPS, FEWER_SWEEPS = 8, 4
"""Of a half-step, and of one of wide data: beside its product they cost little, and save rounds."""
WIDE = 2000
"""From so many features on fewer sweeps do: measured on text, images and made data, they end as low, and sooner."""
NARROW, SLOWLY, MORE = 128, 20, 10
"""Of fewer features than these, after each ``SLOWLY`` rounds half-steps have as many sweeps more, up to ``MORE`` times:
such data are often of many units, and then components that nearly agree in the largest features come apart slowly."""
PATIENT = 5
"""So many times the usual rounds are the most of a patient one: they are cheap beside those of methods that average."""
EVERY = 5
"""Rounds between two looks for components that nobody uses."""
NOTHING = 1e-8
"""A loss below this share of ``|X|^2`` counts as none: data of that rank are explained."""


@dataclass(frozen=True)
class Summed:
    """Each client sends ``A_j = W_j^T W_j`` and ``B_j = W_j^T X_j``; the server sums and updates H.

    With ``momentum`` > 0 both factors are extrapolated (Ang and Gillis 2019): after each half-step
    ``y = [z + beta (z - z_old)]_+`` feeds the other one; beta grows while the loss falls, and shrinks with a
    restart from the last accepted pair when it rises. The loss comes from the sums, so it costs nothing.

    ``changes=True`` is for rounds with absent clients: clients send the *change* of their statistics and the
    server keeps running sums, so whoever is absent stays in the sums with what it sent last. It goes without
    momentum, since a rejected round could not be taken back at absent clients.

    Clients may lack features (:class:`~cofactor.local.columns.SomeColumns`). The gram of a column of H is then the
    sum of A_j over the clients that have it, so ``groups`` (one number per feature, see
    :func:`~cofactor.local.columns.groups`) says which columns share a gram, and a client sends its A_j once for
    every group it has: sums stay sums, and the result stays exact.

    Half-steps are of ``update``; None: coordinate descent, as many sweeps as pay at that many features. One that is
    ``patient`` comes to its end: where narrow data take many rounds it has more and more sweeps, and more rounds.

    With ``penalties`` of codes a client also sends what its codes cost, and with those of the factor its rows.
    """

    rank: int
    update: Update | None = None
    momentum: float = 0.5
    changes: bool = False
    groups: tuple[int, ...] | None = None
    space: Space = field(default_factory=NonNegative)
    penalties: Penalties = UNPENALIZED
    rounds: int | None = None
    patient: bool = False

    @cached_property
    def traits(self) -> Traits:
        """Sums are enough, and add up over rows; codes of clients side by side are improved as one."""
        how: Any = {"running": self.changes, "slow": PATIENT if self.patient else 1, "retracts": self.momentum > 0}
        plain = self.update is None and self.groups is None and not (self.changes or self.penalties.any)
        together = 0 if plain and self.rank > toys.COMPONENTS else None  # of fewer, little rows have other kernels
        return Traits(self.space.kind, additive=True, rowwise=0, together=together, **how)

    def partial(self) -> Summed:
        """Send changes, without momentum."""
        return replace(self, changes=True, momentum=0.0)

    def private(self, privacy: Privacy, *, rounds: int, parts: Parts) -> Method:
        """Return the factor of two noisy moments of all rows, which beat noisy statistics of many rounds."""
        if self.traits.kind != "real" or self.penalties.any:
            raise PrivacyError(no_private(self.traits.kind))
        return moments(self.rank, privacy=privacy, parts=parts, factorize=Alone(Summed(self.rank), ROUNDS))

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``gram`` (upper triangle, for each group), ``cross`` (k x m), ``square`` (``|X_j|^2``); see penalties."""
        k = self.rank
        sums = {"gram": (len(self._parts()), k * (k + 1) // 2), "cross": (k, n_features), "square": ()}
        return sums | ({"price": (), "rows": ()} if self.penalties.scaled else {})

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at a random or a public factor."""
        return self._open(self.space.first_factor(self.rank, n_features, rng) if factor is None else factor)

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Codes of zero, every row new to the server."""
        return unseen(data, self.rank)

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Update the codes for the broadcast factor; send the statistics, or how they changed."""
        known = local.memory
        codes = known["before"] if shared.extra["restart"] else local.codes
        new, gram, cross, price = improve_codes(
            self._update(data.shape[1], t),
            data,
            shared.factor,
            codes,
            known["fresh"],
            t=t,
            momentum=0.0 if self._pauses(shared) else float(shared.extra["momentum"]),
            changes=self.changes,
            penalties=self.penalties,
        )
        told = known["fresh"] | (not self.changes)
        sent = {
            "gram": np.outer(self._present(data), gram).astype(gram.dtype, copy=False),
            "cross": cross,
            "square": known["square"] @ told,
        }
        if self.penalties.scaled:
            sent |= {"price": np.float64(price), "rows": np.float64(np.sum(told))}
        memory = {"square": known["square"], "fresh": np.zeros_like(known["fresh"]), "before": codes}
        return Local(new, memory), Message(sent, data.shape[0])

    def steps(
        self, data: Sequence[Data], shared: Shared, locals: Sequence[Local], t: int
    ) -> list[tuple[Local, Message]]:
        """Update the codes of all in one, for the broadcast factor; send the statistics of each."""
        codes = [known["before"] if shared.extra["restart"] else W for W, known in locals]
        rows = [len(W) for W in codes]
        fresh = np.concatenate([local.memory["fresh"] for local in locals])
        improved = improve_together(
            self._update(data[0].shape[1], t),
            data,
            shared.factor,
            np.concatenate(codes),
            fresh,
            t=t,
            momentum=float(shared.extra["momentum"]),
        )
        told, known = np.ones(max(rows)), np.zeros(max(rows), bool)
        found = []
        for n, old, local, (new, gram, cross, _) in zip(rows, codes, locals, improved, strict=True):
            square = local.memory["square"]
            sent = {"gram": gram[None], "cross": cross, "square": square @ told[:n]}
            found.append((Local(new, {"square": square, "fresh": known[:n], "before": old}), Message(sent, n)))
        return found

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Sum the statistics, update H, extrapolate or restart."""
        old, (sums, dtype) = shared.memory, self._sums(shared.memory, messages)
        point = np.asarray(shared.factor.T, dtype=np.float64, like=sums["cross"])
        momentum = float(shared.extra["momentum"])
        H, gained, share, ahead = improve_factor(
            self._update(len(point), t),
            point,
            [(part, Stats(gram, sums["cross"][part])) for part, gram in zip(self._parts(), sums["gram"], strict=True)],
            t=t,
            previous=old["factor"],
            momentum=momentum,
            penalties=self.penalties,
            rows=float(sums.get("rows", 0.0)),
        )
        value = float(sums.get("price", 0.0) + gained)  # a device is waited for here
        loss = _loss(sums["square"], value)
        lost = _lost(share, t) & (self.space.kind == "real" and not self.penalties.any) & (loss > 0)
        if lost.any():
            H[lost] = _split(H[np.argmax(share)], int(lost.sum()), t)
        overflow = not np.isfinite(value)  # extrapolation can carry the scale of a dying component out of range
        if overflow or (momentum > 0 and value > old["gain"] and not self._pauses(shared)):
            extra = {"momentum": np.float64(momentum / SHRINK), "restart": np.bool_(True)}
            return Shared(old["factor"].astype(dtype), extra, old, _loss(sums["square"], old["gain"]), 0.0)
        extra = {"momentum": np.float64(min(momentum * GROW, 1)), "restart": np.bool_(False)}
        y = ahead.astype(dtype, copy=False)
        if lost.any():
            y[lost] = H[lost].astype(dtype)
        memory = {**sums, "factor": H, "gain": np.float64(value), "share": share}
        return Shared(y, extra, memory, loss, 0.0)

    def factor(self, shared: Shared) -> Array:
        """Return the last accepted H; what is broadcast is extrapolated beyond it."""
        H = shared.memory.get("factor", shared.factor).astype(shared.factor.dtype, copy=False)
        return H if self.penalties.scaled else self.space.final(H)

    def refit(self, data: Data, factor: Array) -> Array:
        """Codes for the final factor."""
        if not self.penalties.any:
            return self.space.refit(data, factor)
        stats = self.penalties.for_codes(for_codes(data, factor.astype(data.dtype, copy=False)), data.shape[1])
        return SOLVE(self.penalties.first(stats), stats)

    def _update(self, n_features: int, t: int) -> Update:
        """Return the update of both half-steps of a round; it depends on nothing that clients may differ in."""
        return self.update or HALS(sweeps_at(n_features, t if self.patient else 0))

    def _pauses(self, shared: Shared) -> bool:
        """Whether codes are not extrapolated in this round: where they cost, one that went too far is very dear."""
        return bool(self.penalties.any and shared.extra["restart"])

    def _parts(self) -> list[Any]:
        """Return the columns of each group."""
        if self.groups is None:
            return [slice(None)]
        return [np.flatnonzero(np.equal(self.groups, g)) for g in range(max(self.groups) + 1)]

    def _present(self, data: Data) -> Array:
        """Say which groups a client has."""
        if self.groups is None:
            return np.ones(1, bool)
        return np.isin(np.arange(max(self.groups) + 1), np.asarray(self.groups)[columns_of(data)])

    def _open(self, H: Array) -> Shared:
        """Begin the statistics at factor H."""
        k, m = H.shape
        extra = {"momentum": np.float64(self.momentum), "restart": np.bool_(False)}
        sums: dict[str, Any] = {
            "gram": np.zeros((len(self._parts()), k * (k + 1) // 2)),
            "cross": np.zeros((m, k)),
            "square": np.float64(0),
        }
        if self.penalties.scaled:
            sums |= {"price": np.float64(0), "rows": np.float64(0)}
        worst = np.float64(np.inf if self.penalties.scaled else 0)  # no factor is not always a worse one
        return Shared(H, extra, {**sums, "factor": H.astype(np.float64), "gain": worst})

    def _sums(self, memory: Any, messages: list[Message]) -> tuple[dict[str, Any], Any]:
        """Return the statistics of all clients, and in what precision they came.

        They are this round's sum, on top of the running sums for changes.
        """
        summed = total(messages)
        sent = summed.arrays
        sums: dict[str, Any] = {
            "gram": sent["gram"],
            "cross": sent["cross"].T,
            **{name: sent[name] for name in ("square", "price", "rows") if name in sent},
        }
        running = {name: memory[name] + a for name, a in sums.items()} if self.changes else sums
        return running, summed.dtypes["cross"]


def sweeps_at(n_features: int, t: int) -> int:
    """Return the sweeps of a half-step at that many features in round t.

    >>> [sweeps_at(m, t) for m, t in ((50, 0), (50, 40), (50, 1000), (1000, 40), (9000, 40))]
    [8, 24, 80, 8, 4]
    """
    if n_features < NARROW:
        return SWEEPS * min(1 + t // SLOWLY, MORE)
    return SWEEPS if n_features < WIDE else FEWER_SWEEPS


def _loss(square: float, gain: float) -> float:
    """Return ``1/2 |X|^2 + gain``, or 0 where that is nothing."""
    loss = float(0.5 * square + gain)
    return loss if not loss <= NOTHING * square else 0.0


def _lost(share: Array, t: int) -> Array:
    """Say which components nobody uses, every few rounds: in between clients may take up what they were given."""
    return (share <= NEGLIGIBLE) & (t % EVERY == EVERY - 1)


def _split(row: Array, count: int, t: int) -> Array:
    """Return ``count`` random parts of one component (count x m): no codes use them yet, so W H stays as it is."""
    return row * (np.random.default_rng([count, t]).uniform(size=(len(row), count)) < 0.5).T
