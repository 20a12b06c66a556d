"""The rank scan over zeros and ones: what tiles say of features that were hidden from rows they have not seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cofactor import kinds
from cofactor.boolean import tally
from cofactor.engines.loop import run
from cofactor.kinds.zero_one import ZERO_ONE
from cofactor.local import arrays
from cofactor.local.told import counted
from cofactor.method import rng
from cofactor.methods import catalog
from cofactor.plan import Plan
from cofactor.select.by_splits import checked, smallest
from cofactor.select.rank import RankScan
from cofactor.types import Array, CofactorError, Data

SHARE, FOLDS = 0.2, 2
"""Rows of every client that are held out, and in how many parts their features are hidden."""
TRIED, SEEDS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20), 2
"""Ranks, as far as the data allow, and splits where nobody names any."""


def scan(data: Sequence[Data], ranks: Sequence[int], *, seeds: int, seed: int) -> RankScan:
    """Scan ranks by the Boolean loss on held-out rows, mean over ``seeds`` splits; see :func:`heldout`.

    The suggestion is the smallest rank within one standard error (paired over splits) of the best.
    """
    Xs = kinds.check(ZERO_ONE, data)
    chosen = checked(Xs, ranks, seeds, "the rows and the features")
    splits = [[_split(X, rng(seed + s, j, 0)) for j, X in enumerate(Xs)] for s in range(seeds)]
    if not all(any(test.sum() for _, test in parts) for parts in splits):
        raise CofactorError(f"a rank scan holds out {SHARE:.0%} of the rows: expected clients with 5 rows or more.")
    tell = counted(lambda found: found, (1 + len(chosen)) * seeds, "fits")
    found = np.array([[tell(_judged(parts, k, seed + s)) for s, parts in enumerate(splits)] for k in (1, *chosen)])
    held, training = found[:, :, 0], found[:, :, 1]
    means, (error, best) = held[1:].mean(axis=1), smallest(held[1:])
    reason = (
        f"Loss {means[best]:.3f} on features that were hidden from held-out rows (1 without a model): no larger rank "
        f"is better by more than a standard error over {seeds} splits."
    )
    none = np.full(len(chosen), np.nan)
    return RankScan(
        np.array(chosen), means, held[1:].std(axis=1), error, training[1:].mean(axis=1), none, none,
        baseline=float(held[0].mean()), suggestion=chosen[best], reason=reason, clients=len(Xs), seeds=seeds,
        holdout=SHARE, bytes_up=int(found[:, :, 2].sum()), bytes_down=int(found[:, :, 3].sum()),
    )  # fmt: skip


def suggested(data: Sequence[Data], *, seed: int) -> int:
    """Return the rank that a scan of a few ranks, far apart where they are large, suggests."""
    limit = min(sum(X.shape[0] for X in data), data[0].shape[1])
    return scan(data, [k for k in TRIED if k <= limit], seeds=SEEDS, seed=seed).suggestion


def _split(X: Data, random: np.random.Generator) -> tuple[Data, Data]:
    """Return the rows that are fitted and those that are held out: at least one is fitted."""
    order, count = random.permutation(X.shape[0]), int(SHARE * X.shape[0])
    return arrays.rows(X, np.sort(order[count:])), arrays.rows(X, np.sort(order[:count]))


def _judged(parts: Sequence[tuple[Data, Data]], rank: int, seed: int) -> tuple[float, float, int, int]:
    """Return the losses of held-out and of fitted rows, and the bytes of a run of the default method."""
    method = catalog.make(catalog.names("boolean")[0], rank, **ZERO_ONE.options)
    found = run(method, [train for train, _ in parts], Plan(seed=seed))
    rest = np.sum([heldout(method, test, found.factor) for _, test in parts], axis=0)
    fitted = [tally(train, W, found.factor) for (train, _), W in zip(parts, found.codes, strict=True)]
    errors, ones = np.sum([(t.error, t.ones) for t in fitted], axis=0)
    up, down = sum(r.bytes_up for r in found.history), sum(r.bytes_down for r in found.history)
    return float(rest[0] / max(rest[1], 1)), float(errors / max(ones, 1)), up, down


def heldout(method: Any, X: Data, H: Array) -> Array:
    """Return errors and ones in cells of new rows: codes are found from other features than those that are judged."""
    found, fold = np.zeros(2), np.arange(H.shape[1]) % FOLDS
    for f in range(FOLDS if X.shape[0] else 0):
        seen, hidden = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        if not seen.size:
            continue
        W = method.refit(X[:, seen], H[:, seen])
        t = tally(X[:, hidden], W, H[:, hidden])
        found += t.error, t.ones
    return found
