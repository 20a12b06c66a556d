"""Boolean coordinate sweeps as rounds after another method: additive counts, and the error never rises."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self

import numpy as np

from cofactor.boolean.bits import error, pack, recalled
from cofactor.boolean.cover import greedy_refit
from cofactor.boolean.elbmf import binary
from cofactor.boolean.sweeps import Changes, changes, choose_all, prices, reseed, uncovered
from cofactor.local.placed import to_host
from cofactor.method import Method, Traits, total
from cofactor.methods.gathered import gathered, turn_of
from cofactor.methods.refusals import no_private
from cofactor.methods.staged import Staged
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Array, CofactorError, Data, Local, Message, Shared


@dataclass(frozen=True)
class Sweeps:
    """``rounds`` Boolean sweeps of a factor that another method found.

    In a sweep each client refits its codes (a row keeps its old code unless the new one has fewer errors) and
    sends by how much the error changes with each bit of H, which components share rows, and the ones that no
    component covers, by column; the server sums and flips what cannot raise the total
    (:mod:`cofactor.boolean.sweeps`). A component that no row uses begins anew as the column with most uncovered ones
    and grows in the next sweep; where no flip helps any more, so does one that saves fewer errors than that column has,
    or whose features another one can take, because the same rows use both.
    Absent clients are not counted: without ``reseeds`` no component begins anew, since what nobody here uses may be
    theirs. Flips by some of the clients are at the cost of the others, too: better all are heard before
    (:class:`~cofactor.methods.gathered.Gathered`).
    """

    rank: int
    rounds: int = 3
    reseeds: bool = True

    traits = Traits("boolean", additive=True, rowwise=0)

    def partial(self) -> Self:
        """Only flip bits."""
        return replace(self, reseeds=False)

    def private(self, privacy: Any, *, rounds: int, parts: Any) -> NoReturn:
        """Refuse."""
        raise PrivacyError(no_private(self.traits.kind))

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``cells`` (k x m), ``overlap`` (k x k), ``uncovered`` (m) and ``error``, all counts."""
        counts = {"cells": (self.rank, n_features), "overlap": (self.rank, self.rank)}
        return {**counts, "uncovered": (n_features,), "error": ()}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at the given factor, rounded to bits; without one there is nothing to sweep."""
        H = np.zeros((self.rank, n_features), np.uint8) if factor is None else binary(factor)
        return Shared(H, {"fresh": np.zeros(self.rank, bool)})

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Pack the rows; no component is used yet."""
        return Local(np.zeros((data.shape[0], self.rank), np.uint8), {"words": pack(data).words})

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Refit the codes and count."""
        X, H = recalled(local.memory["words"], data), pack(shared.factor)
        # what began anew is not what the old codes mean
        W = greedy_refit(X, H, codes=np.where(shared.extra["fresh"], 0, local.codes))
        cells, overlap = changes(X, W, H)
        left = {"uncovered": uncovered(X, W, H), "error": np.int64(error(X, W, H))}
        sent = {"cells": cells, "overlap": overlap, **left}
        return Local(W, {"words": X.words}), Message(sent, float(len(W)))

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Flip bits of H; let components begin anew: the unused ones, and where nothing was flipped the weak ones."""
        # bits are chosen one after the other: in memory, also where clients counted on a device
        sums = {name: np.rint(to_host(a)).astype(np.int64) for name, a in total(messages).arrays.items()}
        found = Changes(sums["cells"], sums["overlap"])
        H, fresh = choose_all(found, shared.factor), np.zeros(self.rank, bool)
        loss = 0.5 * float(sums["error"])
        if not self.reseeds:
            return Shared(H, {"fresh": fresh}, loss=loss, drift=0.0)
        unused = np.diag(found.overlap) == 0
        price, heirs = prices(found, H)
        if not np.array_equal(H, shared.factor):  # they are those of the factor before
            price[:] = np.iinfo(np.int64).max
        H, fresh = reseed(H, np.where(unused, 0, price), sums["uncovered"], np.where(unused, -1, heirs))
        return Shared(H, {"fresh": fresh}, loss=loss, drift=0.0)

    def factor(self, shared: Shared) -> Array:
        """Return H: swept, or rounded if the run ended before (then the first of a shortlist)."""
        return binary(shared.factor)[: self.rank]

    def refit(self, data: Data, factor: Array) -> Array:
        """Greedy cover."""
        return greedy_refit(data, factor)


@dataclass(frozen=True)
class Trial:
    """One round in which the clients choose among ``count`` factors that another method brings, stacked.

    Each client sends its errors under every one of them, after a greedy refit; the server takes the one with the
    smallest sum.
    """

    rank: int
    count: int

    rounds = 1
    traits = Traits("boolean", additive=True, rowwise=0)

    def partial(self) -> Self:
        """Absent clients have no say."""
        return self

    def private(self, privacy: Any, *, rounds: int, parts: Any) -> NoReturn:
        """Refuse."""
        raise PrivacyError(no_private(self.traits.kind))

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """``errors`` (count)."""
        return {"errors": (self.count,)}

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin at the stacked factors (count k x m)."""
        return Shared(np.zeros((self.count * self.rank, n_features), np.uint8) if factor is None else binary(factor))

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Keep nothing."""
        return Local(np.zeros((data.shape[0], self.rank), np.uint8))

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Count the errors under each factor."""
        X = pack(data)
        Hs = [pack(H) for H in np.split(shared.factor, self.count)]
        wrong = np.array([error(X, greedy_refit(X, H), H) for H in Hs], np.int64)
        return local, Message({"errors": wrong}, float(data.shape[0]))

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Take the factor with the fewest errors."""
        errors = total(messages).arrays["errors"]
        best = int(np.argmin(errors))
        return Shared(np.split(shared.factor, self.count)[best], loss=0.5 * float(errors[best]), drift=0.0)

    def factor(self, shared: Shared) -> Array:
        """Return the chosen factor, or the first one if the run ended before."""
        return binary(shared.factor)[: self.rank]

    def refit(self, data: Data, factor: Array) -> Array:
        """Greedy cover."""
        return greedy_refit(data, factor)


def swept(method: Any, *, rounds: int, sweeps: int, turn: int = 1, share: float = 1.0) -> Method:
    """Return a method of ``rounds`` rounds and then ``sweeps`` Boolean sweeps, each of a ``turn`` of rounds."""
    if sweeps:
        return Staged(method, rounds, gathered(Sweeps(method.rank, sweeps), turn, share))
    return method if rounds == method.rounds else replace(method, rounds=rounds)


def lengths(rounds: int, sweeps: int, share: float) -> tuple[int, int, int]:
    """Return how many of the rounds are for the method itself, how many sweeps follow, and the rounds of each.

    Where a round is of a ``share`` of the clients, all are to be heard before a sweep changes the factor. For all
    sweeps together there is at most half of the rounds: rather fewer sweeps, of which each has heard everybody, than
    many of some of the clients at the cost of the others. Most end sooner, and then there are more.

    >>> lengths(50, 3, 1.0), lengths(200, 10, 0.25), lengths(50, 3, 0.25), lengths(20, 3, 0.25)
    ((47, 3, 1), (104, 4, 24), (26, 1, 24), (10, 1, 10))
    """
    if not 0 <= sweeps < rounds:
        raise CofactorError(f"sweeps: expected 0 to {rounds - 1} of the {rounds} rounds, found {sweeps}.")
    if not sweeps or share == 1:
        return rounds - sweeps, sweeps, 1
    turn = turn_of(share, rounds // 2)
    count = max(1, min(sweeps, rounds // (2 * turn)))
    return rounds - turn * count, count, turn
