"""What every client does at the end of a run, where it lives: write what is its own, and say what may be said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cofactor import ratings
from cofactor.engines.contract import Client
from cofactor.jobs import weighing
from cofactor.jobs.client_folder import ClientFolder
from cofactor.kinds.kind import Kind
from cofactor.local.apart import own_part
from cofactor.ratings.ranking import judged, listed, lists
from cofactor.records import ClientScore
from cofactor.select.passports import Own, describe, own_from
from cofactor.types import Array, Data, Message

TOP, RELEVANT = 10, 4.0
"""Length of the lists that are judged, and the rating from which on an item should be in them."""


class Finding(NamedTuple):
    """What one client says of the result: its rows, and what of its errors adds up; ``own`` is that of itself alone.

    ``summary`` is what passports are made of; ``held`` (squared residuals, ratings, and sums of the ranking) of what
    was held out. ``listed`` are the items in the lists of its users (m bits): of a single user nobody needs to know.
    ``apart`` (2 x k) is how much of the model's cells each component makes up, what is shared and what is its own.
    """

    client: str
    rows: int
    tally: Array
    own: Array | None = None
    summary: Message | None = None
    held: Array | None = None
    listed: Array | None = None
    apart: Array | None = None

    def flat(self) -> Array:
        """Return what adds up over clients as one array: the only thing that is said under masks."""
        held = np.zeros(0) if self.held is None else self.held
        return np.concatenate([[1.0, float(len(self.tally))], self.tally, held])

    @classmethod
    def of_all(cls, sums: Array) -> Finding:
        """Return the finding of all clients together, from the sum of theirs; their rows are not known."""
        clients, said, *numbers = sums
        size = round(said / clients)
        return cls("", 0, np.array(numbers[:size]), held=np.array(numbers[size:]) if len(numbers) > size else None)


@dataclass(frozen=True)
class Conclude:
    """The last work of one client, which writes its errors into its own folder where they are nobody else's business.

    In a private run it says nothing, and under ``masks`` only what is added up.
    """

    kind: Kind
    method: Any
    name: str
    folder: ClientFolder
    seed: int
    private: bool
    compares: bool
    held: Any = None
    rows: list[str] | None = None
    scale: Array | None = None
    masks: bool = False

    def __call__(self, client: Client, factor: Array) -> Finding | Array | None:
        """Write codes and pictures; return the finding that all may see, or that is added up."""
        with np.errstate(all="ignore" if self.private else None):  # a warning would tell of a row
            return self._found(client, factor)

    def _found(self, client: Client, factor: Array) -> Finding | Array | None:
        X, W = client.data, client.codes
        self.folder.write_codes(W if self.scale is None else self._own_codes(X, factor, self.scale), self.rows)
        apart = None
        if (weight := self.method.traits.apart) is not None:
            V = own_part(X, W, factor, weight)
            self.folder.write_own(V)
            apart = W.sum(axis=0) * np.array([factor.sum(axis=1), V.sum(axis=1)])
        tally = self.kind.tally(self.method, X, W, factor)
        if self.private or self.masks:
            error, rmsd = self.kind.score(tally)
            self.folder.write_json("evaluation.json", ClientScore(self.name, X.shape[0], error, rmsd))
        if self.private:
            return None
        if self.kind.pictures is not None:
            self.folder.write_pictures(self.kind.pictures(X, W, factor))
        found = Finding(self.name, X.shape[0], tally, apart=apart)
        if self.held is not None:
            found = _judged(found, self.method.layout, client, factor, self.held)
        if self.masks:
            return found.flat()
        if self.held is not None:
            return found
        return self._compared(found, client, factor) if self.compares else found

    def _own_codes(self, X: Data, factor: Array, scale: Array) -> Any:
        """Return the codes of the rows themselves: in a fit they are scaled by how much each counts."""
        return self.method.refit(weighing.scaled([X], [1 / scale])[0], factor)

    def _compared(self, found: Finding, client: Client, factor: Array) -> Finding:
        """Add what the client finds alone: in the run's own first round, or now."""
        address, own = (self.seed, client.number), None if client.own is None else Own(*client.own)
        summary, own = describe(client.data, factor, codes=client.codes, address=address, own=own)
        if not summary.arrays["gram"].any():
            return found._replace(summary=summary)
        return found._replace(summary=summary, own=self._alone(found.tally, client, factor, own))

    def _alone(self, shared: Array, client: Client, factor: Array, own: Own) -> Array:
        """Return the tally of what the client reaches alone: no less than with the shared factor, which it might have.

        Its own start can end elsewhere; then a few rounds from the shared factor tell what sharing costs. Where it has
        looked at some of its rows, what it gains there is taken for that of all.
        """

        def error(tally: Array) -> float:
            return self.kind.score(tally).error

        X, with_all = client.data, shared
        if own.drawn is not None:
            X = own.drawn.data(X)
            with_all = self.kind.tally(self.method, X, own.drawn.codes(client.codes), factor)
        alone = self.kind.tally(None, X, own.codes, own.factor)
        if error(alone) > error(with_all) and self.method.traits.apart is None:  # which has more than a factor
            found = own_from(X, factor, (self.seed, client.number))
            alone = min(with_all, self.kind.tally(None, X, *found), key=error)
        if own.drawn is None or not with_all[0]:
            return alone
        return np.array([shared[0] * alone[0] / with_all[0], *shared[1:]])


def _judged(found: Finding, layout: Any, client: Client, factor: Array, held: Any) -> Finding:
    """Add what of the errors on held-out ratings adds up, and the items that are recommended to anybody here."""
    relevant = held.multiply(held > 0 if layout.implicit else held >= RELEVANT).tocsr()
    relevant.eliminate_zeros()
    best = lists(client.codes, factor, client.data, n=TOP)
    clicks = layout.implicit or held.nnz == 0
    squares = 0.0 if clicks else float(ratings.residual_squares(held, client.codes, factor).sum())
    sums = [squares, 0.0 if clicks else held.nnz, held.nnz, *judged(best, relevant, n=TOP).sums]
    return found._replace(held=np.array(sums), listed=listed(best, factor.shape[1]) if found.rows > 1 else None)
