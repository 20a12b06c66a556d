"""The rank scan over ratings: held-out RMSE of every rank, from runs of the same method over the same clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cofactor import ratings
from cofactor.data import ratings_split
from cofactor.engines.loop import run
from cofactor.engines.outcome import Run
from cofactor.kinds.kind import root
from cofactor.local.told import counted
from cofactor.methods import catalog
from cofactor.plan import Plan
from cofactor.select import RankScan
from cofactor.select.by_splits import checked, smallest
from cofactor.types import Array, CofactorError, Data

ALIKE = (
    "a rank scan judges ranks by the error on held-out ratings: expected ratings that differ, found {value:g} for all "
    "of them. Clicks are judged by lists: compare the ndcg of fits of several ranks, as by cofactor fit --ratings "
    "--option alpha=40 --holdout random."
)
SHARE, ROUNDS, TOL = 0.1, 30, 1e-4
"""Ratings of every user that are held out, and when a run ends."""


def scan(data: Sequence[Data], ranks: Sequence[int], *, seeds: int, seed: int) -> RankScan:
    """Scan ranks by the RMSE on held-out ratings, mean over ``seeds`` splits and starts; errors are RMSE here.

    The suggestion is the smallest rank within one standard error (paired over splits) of the best.
    """
    chosen = checked(data, ranks, seeds, "the users and the items")
    if len(values := np.unique(np.concatenate([R.data for R in data]))) == 1:
        raise CofactorError(ALIKE.format(value=values[0]))
    splits = [[ratings_split.at_random(R.tocsr(), share=SHARE, seed=seed + s) for R in data] for s in range(seeds)]
    if not all(sum(part.test.nnz for part in parts) for parts in splits):
        raise CofactorError(
            f"a rank scan holds out {SHARE:.0%} of every user's ratings: expected users with 10 or more."
        )
    tell = counted(lambda found: found, (1 + len(chosen)) * seeds, "fits")
    runs = [[tell(_run(parts, k, seed + s)) for s, parts in enumerate(splits)] for k in (1, *chosen)]
    held, training = (
        np.array([[_rmse(found, [p[side] for p in parts]) for found, parts in zip(line, splits)] for line in runs])
        for side in (1, 0)
    )
    means, (error, best) = held[1:].mean(axis=1), smallest(held[1:])
    reason = (
        f"Held-out RMSE {means[best]:.4f}: no larger rank is better by more than a standard error over {seeds} splits."
    )
    none = np.full(len(chosen), np.nan)
    return RankScan(
        np.array(chosen), means, held[1:].std(axis=1), error, training[1:].mean(axis=1), none, none,
        baseline=float(held[0].mean()), suggestion=chosen[best], reason=reason, clients=len(data), seeds=seeds,
        holdout=SHARE, bytes_up=sum(r.bytes_up for line in runs for found in line for r in found.history),
        bytes_down=sum(r.bytes_down for line in runs for found in line for r in found.history),
    )  # fmt: skip


def _run(parts: Sequence[ratings_split.RatingsSplit], rank: int, seed: int) -> Run:
    method = catalog.make(catalog.names("ratings")[0], rank)
    return run(method, [part.train for part in parts], Plan(ROUNDS, stop=TOL, seed=seed))


def _rmse(found: Run, parts: Sequence[Data]) -> float:
    squares: list[Array] = [ratings.residual_squares(R, W, found.factor) for R, W in zip(parts, found.codes)]
    return root(float(sum(s.sum() for s in squares)), sum(R.nnz for R in parts))
