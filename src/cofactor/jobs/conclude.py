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
from cofactor.kinds.passports import judged
from cofactor.local.apart import own_part
from cofactor.ratings import ranking
from cofactor.records import ClientScore
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
    def of_all(cls, sums: Array, kind: Kind) -> Finding | None:
        """Return the finding of all clients together, from the sum of theirs; their rows are not known.

        None where it is none of this kind of data: under masks nobody can say who has lied, and the factor is there.
        """
        try:
            clients, said, *numbers = sums
            size = round(said / clients)
            held = np.array(numbers[size:]) if len(numbers) > size else None
            found = cls("", 0, np.array(numbers[:size]), held=held)
            kind.score(found.tally)
        except (ValueError, TypeError, ArithmeticError):
            return None
        return found


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
        tally, summary, own = judged(self.kind, self.method, client, factor, self.seed if self.compares else None)
        if self.private or self.masks:
            error, rmsd = self.kind.score(tally)
            self.folder.write_json("evaluation.json", ClientScore(self.name, X.shape[0], error, rmsd))
        if self.private:
            return None
        if self.kind.pictures is not None:
            self.folder.write_pictures(self.kind.pictures(X, W, factor))
        found = Finding(self.name, X.shape[0], tally, own, summary, apart=apart)
        if self.held is not None:
            found = _ranked(found, self.method.layout, client, factor, self.held)
        return found.flat() if self.masks else found

    def _own_codes(self, X: Data, factor: Array, scale: Array) -> Any:
        """Return the codes of the rows themselves: in a fit they are scaled by how much each counts."""
        return self.method.refit(weighing.scaled([X], [1 / scale])[0], factor)


def _ranked(found: Finding, layout: Any, client: Client, factor: Array, held: Any) -> Finding:
    """Add what of the errors on held-out ratings adds up, and the items that are recommended to anybody here."""
    relevant = held.multiply(held > 0 if layout.implicit else held >= RELEVANT).tocsr()
    relevant.eliminate_zeros()
    best = ranking.lists(client.codes, factor, client.data, n=TOP)
    clicks = layout.implicit or held.nnz == 0
    squares = 0.0 if clicks else float(ratings.residual_squares(held, client.codes, factor).sum())
    sums = [squares, 0.0 if clicks else held.nnz, held.nnz, *ranking.judged(best, relevant, n=TOP).sums]
    return found._replace(held=np.array(sums), listed=ranking.listed(best, factor.shape[1]) if found.rows > 1 else None)
