"""New rows for a model that is there: old rows stand in a union of summaries, and the factor goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cofactor.combine import summaries
from cofactor.local import arrays, devices
from cofactor.local.descents import Descents
from cofactor.local.half_steps import nearly
from cofactor.local.stacked import Summary, stacked
from cofactor.local.stats import for_codes, for_factor, gain, normalize
from cofactor.local.updates import HALS
from cofactor.methods.alone import Alone
from cofactor.methods.summed import Summed
from cofactor.types import Array, CofactorError, Data, Stats

OVER, MOST = 3, 32
"""Rank of a summary over that of the model, and summaries that are kept before the older ones are merged."""
SWEEPS, ITERATIONS, IMPROVING, TOL = 20, 60, 3, 1e-5
"""Sweeps of the first codes, iterations in which the factor goes on, sweeps of each half of them, and when they end."""
SINGULAR = 1e-10
"""Part of the largest eigenvalue of a gram below which one counts as none."""
ALONE: Any = Alone(Summed(1), rounds=60)
"""How rows are factorized for their summary."""
OTHERS = ("exact-beta", "exact-gaps", "shared-own")
"""Methods that minimize something else than ``|X - W H|^2`` over all cells, which is all that summaries know."""
LOSSES = ("beta", "codes_penalty", "factor_penalty", "overlap")
"""Options that do so."""


def refuse(method: Any, kind: str, options: Mapping[str, Any]) -> None:
    """Refuse to go on with what summaries do not hold: another loss, a penalty, gaps, parts of the clients' own."""
    if method in OTHERS or kind == "gaps":
        raise CofactorError(
            f"partial_fit: expected plain least squares over whole rows, found method {method!r}; fit all rows "
            "together, or begin at the factor that is there: fit(X, H=model.components_)."
        )
    if any(name in options for name in LOSSES):
        raise CofactorError("partial_fit: expected plain least squares, found another beta_loss, or a penalty.")


def summary(X: Data, W: Array, seed: int) -> Summary:
    """Summarize rows by their codes W (n x k) and by codes of their own, at ``OVER`` times the rank or what they have.

    Its factor is the one of least squares, of any sign: for all codes V that are made of these, ``|X - V H|^2`` is then
    what a union says of them, and a constant.
    """
    own, _ = ALONE(X, min(OVER * W.shape[1], *X.shape), np.random.default_rng(seed))
    codes = np.hstack([devices.plain(a).astype(np.float64) for a in (W, own)])
    gram, cross = codes.T @ codes, arrays.times_codes(X, codes.astype(X.dtype)).T.astype(np.float64)
    factor = np.linalg.pinv(gram, rcond=SINGULAR, hermitian=True) @ cross
    return Summary(factor, gram, float(X.shape[0]), arrays.square(X))


def recalled(codes: list[Array], H: Array) -> Summary:
    """Summarize rows of which only codes are known: as their reconstruction."""
    gram = sum(W.T.astype(np.float64) @ W for W in codes)
    square = float(np.vdot(gram, H.astype(np.float64) @ H.T.astype(np.float64)))
    return Summary(H, np.asarray(gram), float(sum(map(len, codes))), square)


def grow(kept: list[Summary], data: list[Data], H: Array, seed: int) -> tuple[list[Summary], Array]:
    """Return the summaries, with those of new rows, and the factor that has gone on on all: on these as they are.

    Older summaries are merged where they are many. Codes of old rows are made of those that they had.
    """
    if len(kept) > MOST:
        older, newer = kept[: MOST // 2], kept[MOST // 2 :]
        kept = [summaries.merge(older, 2 * max(len(s.factor) for s in newer), restarts=1), *newer]
    union, F = stacked(kept), H.astype(np.float64)
    old, codes, before = Descents.of(union, [F]), [nearly(X, F) for X in data], np.inf
    old.codes(SWEEPS)
    for _ in range(ITERATIONS):
        loss, (gram, cross) = float(old.codes(IMPROVING)[0]) + union.rest, union.stats(old.C[0])
        for j, X in enumerate(data):
            stats = for_codes(X, F.astype(X.dtype))
            codes[j] = HALS(IMPROVING)(codes[j], stats)
            loss += arrays.square(X) + 2 * gain(stats, codes[j])
            new = for_factor(X, codes[j])
            gram, cross = gram + new.gram, cross + new.cross
        F = HALS(IMPROVING)(F.T.copy(), Stats(gram, cross)).T
        old.F = F.T[None]
        if before - loss <= TOL * abs(loss):
            break
        before = loss
    norms = np.linalg.norm(F, axis=1)
    mine = [summary(X, W * norms.astype(W.dtype), seed) for X, W in zip(data, codes, strict=True)]
    return [*kept, *mine], normalize(F).astype(H.dtype)
