"""Choose the rank: masked cross-validation and stability, federated, from one upload per client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any

import numpy as np

from cofactor import kinds
from cofactor.engines.contract import Engine
from cofactor.engines.history import Round
from cofactor.engines.loop import run
from cofactor.kinds.numbers import NON_NEGATIVE
from cofactor.local.brief import ROWS_PER_COMPONENT
from cofactor.select.scan import Scan
from cofactor.select.suggest import STABLE, choose, curves
from cofactor.types import Array, CofactorError, Data, Shared

LARGEST = 30


@dataclass(frozen=True, eq=False)
class RankScan:
    """What a rank scan found. Arrays have one entry per rank (K); errors are squared and relative to ``|X|^2``.

    ``heldout`` is ``sum_j |X_j - W_j H|^2 / sum_j |X_j|^2`` over held-out cells (each client's codes are solved on
    its kept cells), mean over seeds; ``heldout_std`` its spread over clients and seeds. ``gap_error`` is the
    standard error of ``heldout - min heldout``, paired over groups of rows. ``seed_stability`` is the mean matched
    cosine between seeds, ``client_stability`` that of the clients' own components with the shared ones they use.
    ``baseline`` is the held-out error of rank 1. Stabilities are NaN for one seed or one client, and over seeds where
    all summaries together have no more components than the rank: every seed begins and ends with those.
    """

    ranks: Array
    heldout: Array
    heldout_std: Array
    gap_error: Array
    training: Array
    seed_stability: Array
    client_stability: Array
    baseline: float
    suggestion: int
    reason: str
    clients: int
    seeds: int
    holdout: float
    bytes_up: int
    bytes_down: int

    def table(self) -> list[dict[str, Any]]:
        """One row per rank, ready to print; ``suggested`` marks the suggestion."""
        columns = {name: _plain(a) for name, a in vars(self).items() if isinstance(a, np.ndarray)}
        ranks = columns.pop("ranks")
        return [
            {"rank": k, **{name: a[i] for name, a in columns.items()}, "suggested": k == self.suggestion}
            for i, k in enumerate(ranks)
        ]

    def to_dict(self) -> dict[str, Any]:
        """All of it in lists and numbers that JSON knows (NaN becomes None)."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


def select_rank(
    Xs: Sequence[Data],
    ranks: Iterable[int] | None = None,
    *,
    seeds: int = 3,
    holdout: float = 0.1,
    seed: int = 0,
    restarts: int = 4,
    stable: float = STABLE,
    engine: Engine | None = None,
) -> RankScan:
    """Scan ranks (default: 2 to 30, as far as the data allow) and suggest one; see :class:`RankScan`.

    Each client hides a share ``holdout`` of its cells, factorizes the rest and uploads one summary; the server fits
    every rank with every seed from their union; clients answer with scalars. The suggestion is the smallest rank
    within one standard error of the best held-out error whose ``seed_stability`` is at least ``stable``.

    >>> from cofactor.data import synthetic
    >>> Xs = synthetic.blocks(3, 60, features=30, rank=3, seed=1).Xs
    >>> select_rank(Xs, range(2, 6), seeds=2).suggestion
    3
    """
    data = kinds.check(NON_NEGATIVE, Xs)
    chosen = _check_ranks(ranks, data)
    _check_settings(seeds, holdout, restarts)
    states: list[tuple[Round, Shared]] = []
    method = Scan(tuple(sorted({1, *chosen})), seeds=seeds, holdout=holdout, restarts=restarts, seed=seed)
    run(method, data, rounds=2, seed=seed, engine=engine, callbacks=[lambda *state: states.append(state)])
    every = curves(np.array(method.ranks), states[-1][1].memory, chosen=np.array(chosen))
    found, baseline = every.at(np.array(chosen)), float(every.heldout[0])
    suggestion, reason = choose(found, baseline, stable=stable)
    return RankScan(
        *found[:-2],
        baseline=baseline,
        suggestion=suggestion,
        reason=reason,
        clients=len(data),
        seeds=seeds,
        holdout=holdout,
        bytes_up=sum(line.bytes_up for line, _ in states),
        bytes_down=sum(line.bytes_down for line, _ in states),
    )


def _check_ranks(ranks: Iterable[int] | None, data: list[Data]) -> list[int]:
    """Return the ranks in order, or say which of them the data cannot have."""
    m, half = data[0].shape[1], sum(X.shape[0] // ROWS_PER_COMPONENT for X in data)
    if half == 0:
        raise CofactorError("a rank scan needs a client with at least 2 rows. Found only clients with 1 row.")
    if m < 2:
        raise CofactorError(f"a rank scan needs at least 2 features, some to hide and some to keep. Found {m}.")
    if isinstance(ranks, Integral):
        raise CofactorError(f"ranks: expected several, as range(2, {ranks + 1}), found {ranks}.")
    limit = min(m, half)
    chosen = list(range(min(2, limit), min(LARGEST, limit) + 1)) if ranks is None else list(ranks)
    if not chosen:
        raise CofactorError("ranks: expected at least one rank to scan, found none.")
    for k in chosen:
        if not isinstance(k, Integral) or not 1 <= k <= limit:
            raise CofactorError(
                f"ranks must be whole numbers in 1..{limit}: at most the features ({m}) and half the rows of all "
                f"clients ({half}). Found {k!r}."
            )
    return sorted({int(k) for k in chosen})


def _check_settings(seeds: int, holdout: float, restarts: int) -> None:
    if not 0 < holdout <= 0.5:
        raise CofactorError(f"holdout must be in (0, 0.5]. Found {holdout}.")
    for name, value in (("seeds", seeds), ("restarts", restarts)):
        if not isinstance(value, Integral) or value < 1:
            raise CofactorError(f"{name} must be a whole number of at least 1. Found {value!r}.")


def _plain(value: Any) -> Any:
    """Turn arrays and numpy scalars into lists and numbers, NaN into None."""
    if isinstance(value, np.ndarray):
        return [_plain(v) for v in value.tolist()]
    if isinstance(value, float):
        return None if np.isnan(value) else float(value)
    return value
