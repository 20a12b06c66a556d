"""From the clients' scalars to curves over ranks, and from the curves to one rank with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cofactor.types import Array, CofactorError

STABLE = 0.9
NEGLIGIBLE, LEAST = 2e-3, 1e-6
"""Differences of relative squared errors below this share of what rank 1 leaves count as none, and so do those below
the least one: fits of clean data still fall by as much when they end."""


class Curves(NamedTuple):
    """One entry per rank (K), rank 1 first; see :class:`cofactor.select.rank.RankScan`.

    ``doubled`` marks ranks at which every client's own components stand side by side although some are the same:
    such a union predicts a little better than the shared components do, as the mean of many fits would.
    """

    ranks: Array
    heldout: Array
    heldout_std: Array
    gap_error: Array
    training: Array
    seed_stability: Array
    client_stability: Array
    gain_error: Array
    doubled: Array

    def at(self, ranks: Array) -> Curves:
        """Return the curves at some of the ranks."""
        keep = np.isin(self.ranks, ranks)
        return Curves(*(a[keep] for a in self))


def curves(ranks: Array, scalars: Mapping[str, Array], *, chosen: Array) -> Curves:
    """Pool the scalars that the clients sent; ``chosen`` are the ranks that may be best.

    ``heldout`` (c x K x S x groups) and ``heldout_square`` (c x groups), ``training`` (c x K x S),
    ``training_square`` (c), both stabilities and ``doubled`` (K).
    ``gain_error`` is the standard error of ``heldout(1) - heldout``.
    """
    errors, squares = scalars["heldout"], scalars["heldout_square"]
    if not squares.sum() > 0:
        raise CofactorError("expected held-out values above 0, found none: hold out more cells, or bring more rows.")
    heldout = errors.sum(axis=(0, 3)).mean(axis=1) / squares.sum()
    apart = _ratio(errors.sum(axis=3), squares.sum(axis=1)[:, None, None])
    doubled = scalars["doubled"]
    best = int(np.argmin(np.where(_eligible(np.isin(ranks, chosen), doubled), heldout, np.inf)))
    training = scalars["training"].sum(axis=0).mean(axis=1) / scalars["training_square"].sum()
    stability = scalars["seed_stability"], scalars["client_stability"]
    gap, gain = (paired_error(errors, squares, reference=i) for i in (best, 0))
    return Curves(ranks, heldout, apart.std(axis=(0, 2)), gap, training, *stability, gain, doubled)


def paired_error(errors: Array, squares: Array, *, reference: int) -> Array:
    """Standard error of ``heldout(k) - heldout(reference)`` (K).

    Takes errors (c x K x S x groups) and squares (c x groups).
    Groups of rows are the independent units: ``u / (u - 1) sum_u (d_u - D q_u)^2 / Q^2`` with differences ``d_u``,
    squares ``q_u``, ``Q = sum q_u`` and ``D = sum d_u / Q``; the variance of the mean over seeds is added.
    """
    difference = errors - errors[:, reference : reference + 1]
    units = difference.mean(axis=2).transpose(0, 2, 1).reshape(-1, errors.shape[1])
    q, total, u = squares.reshape(-1), squares.sum(), squares.size
    rest = units - np.outer(q, units.sum(axis=0) / total)
    variance = u / max(u - 1, 1) * np.sum(rest**2, axis=0) / total**2
    by_seed, seeds = difference.sum(axis=(0, 3)) / total, errors.shape[2]
    if seeds > 1:
        variance = variance + by_seed.var(axis=1, ddof=1) / seeds
    return np.sqrt(variance)


def choose(found: Curves, baseline: float, *, stable: float = STABLE) -> tuple[int, str]:
    """Return the suggested rank and why, in words."""
    found = found.at(found.ranks[_eligible(np.ones(len(found.ranks), bool), found.doubled)])
    best = int(np.argmin(found.heldout))
    lowest, k = found.heldout[best], found.ranks
    nothing = max(NEGLIGIBLE * baseline, LEAST)
    if found.ranks[best] > 1 and baseline - lowest <= max(found.gain_error[best], nothing):
        return int(k[0]), (
            f"Nothing beyond one component is stable: no rank predicts held-out cells better than rank 1 does "
            f"(error {baseline:.3g}; best {lowest:.3g} at rank {k[best]}). The data look like one pattern plus noise; "
            f"{k[0]} is the smallest rank of the scan."
        )
    near = found.heldout - lowest <= np.maximum(found.gap_error, nothing)
    firm = ~(found.seed_stability < stable)
    if (near & firm).any():
        i = int(np.argmax(near & firm))
        return int(k[i]), _within(found, i, best)
    if firm.any():
        i = int(np.argmin(np.where(firm, found.heldout, np.inf)))
        return int(k[i]), (
            f"Rank {k[i]} has the lowest held-out error ({found.heldout[i]:.3g}) of the ranks whose components return "
            f"with other seeds (matched cosine {found.seed_stability[i]:.2f}). Rank {k[best]} predicts better "
            f"({lowest:.3g}), but its components do not return ({found.seed_stability[best]:.3f}, wanted {stable:g})."
        )
    i = int(np.argmax(near))
    return int(k[i]), (
        f"No rank is stable: components change with the seed everywhere (matched cosine at most "
        f"{np.nanmax(found.seed_stability):.3f}, wanted {stable:g}). Rank {k[i]} is the smallest within one standard "
        f"error of the best held-out error ({lowest:.3g} at rank {k[best]}); read its components with care."
    )


def _eligible(chosen: Array, doubled: Array) -> Array:
    """Return which of the chosen ranks may be suggested: those without doubled components, or all if there are none."""
    single = chosen & ~doubled
    return single if single.any() else chosen


def _within(found: Curves, i: int, best: int) -> str:
    """Say why the i-th rank is the one."""
    k, lowest = found.ranks, found.heldout[best]
    if i == best:
        text = f"Rank {k[i]} has the lowest held-out error ({lowest:.3g})"
    else:
        sure = found.heldout[i] - lowest <= found.gap_error[i]
        near = f"within one standard error ({found.gap_error[i]:.2g}) of" if sure else "next to nothing above"
        text = (
            f"Rank {k[i]} is the smallest stable rank whose held-out error ({found.heldout[i]:.3g}) is {near} the best "
            f"({lowest:.3g} at rank {k[best]})"
        )
    seed, client = found.seed_stability[i], found.client_stability[i]
    text += "" if np.isnan(seed) else f"; its components return with other seeds (matched cosine {seed:.2f})"
    text += "" if np.isnan(client) else f"; clients alone find those they use with a cosine of {client:.2f}"
    last = len(k) > 1 and best == len(k) - 1
    return text + (". The error still falls at the end of the scan: try larger ranks." if last else ".")


def _ratio(up: Array, down: Array) -> Array:
    """Divide; 0 where there is nothing to divide by."""
    return np.divide(up, down, out=np.zeros(up.shape), where=np.broadcast_to(down, up.shape) > 0)
