"""The rank scan as a method of two rounds: summaries go up, factors come down, errors (scalars) go up."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from cofactor.combine import summaries
from cofactor.kinds.matching import agreement, client_agreement, is_doubled
from cofactor.local import arrays
from cofactor.local.brief import ROWS_PER_COMPONENT
from cofactor.local.stacked import Summary
from cofactor.local.told import counted
from cofactor.method import SERVER, Traits, rng
from cofactor.methods.refusals import no_private
from cofactor.privacy.errors import PrivacyError
from cofactor.select import cells, holdout
from cofactor.select.holdout import Holdout
from cofactor.types import Array, CofactorError, Data, Local, Message, Shared

JUDGES = 20
"""At most this many clients are asked how well they find the shared components alone."""
ITERATIONS = 100
"""Iterations of each fit on all columns: with 60 and with 200 held-out errors of six data sets differ by .001."""


@dataclass(frozen=True)
class Scan:
    """Round 0: every client factorizes its kept cells alone and sends ``H_j``, ``G_j = W_j^T W_j`` and their square.

    The server fits every rank with every seed from the union of these summaries and broadcasts the factors.
    Round 1: every client solves codes on its kept cells and sends, for each rank and seed, its squared error on
    the held-out cells (in a few groups of rows) and on the kept cells: scalars. A client of one row sends no summary.
    """

    ranks: tuple[int, ...]
    seeds: int = 3
    holdout: float = 0.1
    restarts: int = 4
    seed: int = 0

    rounds = 2
    traits = Traits()

    @property
    def rank(self) -> int:
        """The largest rank: the most components of a summary."""
        return max(self.ranks)

    def partial(self) -> Self:
        """Absent clients are neither in the union nor in the errors."""
        return self

    def private(self, privacy: Any, *, rounds: int, parts: Any) -> NoReturn:
        """Refuse."""
        raise PrivacyError(no_private("real"))

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """Round 0: ``factor`` (r x m), ``gram`` (r x r), ``square``. Round 1: errors and squares by rank and seed."""
        if t == 0:
            return {"factor": (self.rank, n_features), "gram": (self.rank, self.rank), "square": ()}
        table = (len(self.ranks), self.seeds)
        return {
            "heldout": (*table, cells.GROUPS),
            "training": table,
            "heldout_square": (cells.GROUPS,),
            "training_square": (),
        }

    def start(self, n_features: int, rng: np.random.Generator, factor: Array | None = None) -> Shared:
        """Begin without a factor."""
        if factor is not None:
            raise CofactorError("a rank scan starts from the clients' summaries; expected no start, found one.")
        return Shared(np.zeros((0, n_features)))

    def join(self, data: Data, shared: Shared, t: int, rng: np.random.Generator) -> Local:
        """Draw the cells to hold out."""
        held = holdout.draw(data, self.holdout, rng)
        return Local(np.zeros((data.shape[0], 0)), held._asdict())

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Summarize the kept cells, then score the server's factors."""
        X, held = data.tocsr() if sparse.issparse(data) else data, Holdout(**local.memory)
        sent = self._summarize(X, held, rng) if t == 0 else self._score(X, held, shared.factor)
        return local, Message(sent, float(data.shape[0]))

    def _summarize(self, X: Data, held: Holdout, rng: np.random.Generator) -> dict[str, Any]:
        n, m = X.shape
        factor, gram = np.zeros((self.rank, m), X.dtype), np.zeros((self.rank, self.rank))
        most = min(self.rank, n // ROWS_PER_COMPONENT, m)
        if most > 0:
            r = cells.own_rank(X, most, held=held, share=self.holdout, rng=rng)
            W, H = cells.factorize(cells.masked(X, held), r, rng)
            factor[:r], gram[:r, :r] = H, W.T.astype(np.float64) @ W
            factor[np.diag(gram) == 0] = 0
        square = arrays.square(holdout.kept(X, held)) if most > 0 else 0.0
        return {"factor": factor, "gram": gram, "square": np.float64(square)}

    def _score(self, X: Data, held: Holdout, stack: Array) -> dict[str, Any]:
        ends = np.cumsum(np.repeat(self.ranks, self.seeds))
        found = cells.scores(X, np.split(stack, ends[:-1]), held)
        hidden, table = holdout.values(X, held), (len(self.ranks), self.seeds)
        return {
            "heldout": np.array([s.heldout for s in found]).reshape(*table, cells.GROUPS),
            "training": np.array([s.training for s in found]).reshape(table),
            "heldout_square": cells.grouped(held, held.weights * hidden**2),
            "training_square": np.float64(arrays.square(holdout.kept(X, held))),
        }

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Fit every rank and seed from the union, then gather the errors."""
        if t == 0:
            return self._fit(messages)
        errors = {name: np.stack([m.arrays[name] for m in messages]) for name in messages[0].arrays}
        return shared._replace(memory={**shared.memory, **errors})

    def _fit(self, messages: list[Message]) -> Shared:
        union = [Summary(m.arrays["factor"], m.arrays["gram"], m.weight, float(m.arrays["square"])) for m in messages]
        seeds = rng(self.seed, SERVER, 0).integers(2**31, size=self.seeds).tolist()
        work = [(k, s) for k in self.ranks for s in seeds]

        def fit(task: tuple[int, int]) -> tuple[Array, Array]:
            return summaries.fit(union, task[0], seed=task[1], restarts=self.restarts, iterations=ITERATIONS)

        fits = _in_threads(counted(fit, len(work), "fits"), work)
        by_rank = [fits[i : i + self.seeds] for i in range(0, len(fits), self.seeds)]
        judges = np.sort(rng(self.seed, SERVER, 1).permutation(len(union))[:JUDGES])
        chosen = [union[j] for j in judges]
        found = sum(int(np.count_nonzero(np.diag(s.gram))) for s in union)  # a union of no more is its own factor
        over_seeds = [agreement([H for H, _ in group]) for group in by_rank]
        memory = {
            "seed_stability": np.where(np.array(self.ranks) < found, over_seeds, np.nan),
            "doubled": (np.array(self.ranks) >= found) & is_doubled(union),
            "client_stability": np.array(
                _in_threads(lambda group: client_agreement(chosen, group[0][0], group[0][1][judges]), by_rank)
            ),
        }
        dtype = messages[0].arrays["factor"].dtype
        return Shared(np.vstack([H for H, _ in fits]).astype(dtype), memory=memory)

    def factor(self, shared: Shared) -> Array:
        """Return the stacked factors of all ranks and seeds."""
        return shared.factor

    def refit(self, data: Data, factor: Array) -> Array:
        """Return no codes: a scan leaves none."""
        return np.zeros((data.shape[0], 0))


def _in_threads(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Apply ``work`` to independent items in threads, BLAS at one thread each; results in order."""
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(work, items))
