"""New rows for a model that is there: old rows stand in a union of summaries, and the factor goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cofactor.combine import summaries
from cofactor.combine.summaries import Summary
from cofactor.combine.unions import Descent
from cofactor.local import arrays
from cofactor.local.stats import normalize
from cofactor.methods.alone import Alone
from cofactor.methods.summed import Summed
from cofactor.types import Array, CofactorError, Data

OVER, MOST = 3, 32
"""Rank of a summary over that of the model, and summaries that are kept before the older ones are merged."""
SWEEPS, ITERATIONS = 20, 60
"""Sweeps of the first codes, and iterations in which the factor goes on."""
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


def summary(X: Data, rank: int, seed: int) -> Summary:
    """Summarize rows at ``OVER`` times the rank, or what they have."""
    wide = min(OVER * rank, *X.shape)
    W, H = ALONE(X, wide, np.random.default_rng(seed))
    return summaries.summarize(W, H, square=arrays.square(X))


def recalled(codes: list[Array], H: Array) -> Summary:
    """Summarize rows of which only codes are known: as their reconstruction."""
    gram = sum(W.T.astype(np.float64) @ W for W in codes)
    square = float(np.vdot(gram, H.astype(np.float64) @ H.T.astype(np.float64)))
    return Summary(H, np.asarray(gram), float(sum(map(len, codes))), square)


def grow(kept: list[Summary], H: Array) -> tuple[list[Summary], Array]:
    """Return the summaries, older ones merged where they are many, and the factor that has gone on on all of them."""
    if len(kept) > MOST:
        older, newer = kept[: MOST // 2], kept[MOST // 2 :]
        kept = [summaries.merge(older, 2 * max(len(s.factor) for s in newer), restarts=1), *newer]
    descent = Descent(summaries.stacked(kept), H.astype(np.float64))
    descent.codes(SWEEPS)
    descent.advance(ITERATIONS)
    return kept, normalize(descent.H).astype(H.dtype)
