"""The two half-steps of alternating least squares, each from statistics: the codes of one client, the factor of all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from cofactor.local import arrays
from cofactor.local.graphs import replayed
from cofactor.local.kernels import descent, one_pass
from cofactor.local.penalties import UNPENALIZED, Penalties
from cofactor.local.placed import Placed
from cofactor.local.stats import for_codes, gain
from cofactor.local.symmetric import mirrored, triangle, triangles
from cofactor.local.updates import HALS
from cofactor.types import Array, Data, Local, Stats, Update

FIRST_SWEEPS = 10
"""Of the first codes: beside the two products they cost little, and save rounds."""
NEGLIGIBLE = 1e-14
"""Share of the energy ``|W_l|^2 |H_l|^2`` of the strongest component under which one counts as vanished."""

FAR = 1e3
"""How long, or short, a component of the factor may become before extrapolation leaves its length alone."""
TINY = np.finfo(np.float64).tiny


class Improved(NamedTuple):
    """New codes W (n x k), and of those extrapolated beyond them ``cross`` (k x m), ``price`` and ``gram``.

    Of the gram, here and where the factor is improved, it is the upper triangle, k (k + 1) / 2 numbers.
    """

    codes: Array
    gram: Array
    cross: Array
    price: float


class Renewed(NamedTuple):
    """A new factor H (k x m), ``gain = 1/2 |W H|^2 - <X, W H>``, and the ``share`` of every component in it (k).

    ``ahead`` is what H is extrapolated to.
    """

    factor: Array
    gain: float
    share: Array
    ahead: Array


def unseen(data: Data, rank: int) -> Local:
    """Return the state of a client whose rows have no codes yet; all arrays have one entry for each of them."""
    codes, n = arrays.zeros((data.shape[0], rank), data), data.shape[0]
    return Local(codes, {"square": arrays.row_squares(data), "fresh": np.ones(n, bool), "before": codes})


def improve_codes(
    update: Update,
    data: Data,
    factor: Array,
    codes: Array,
    fresh: Array,
    *,
    t: int,
    momentum: float,
    changes: bool,
    penalties: Penalties,
) -> Improved:
    """Improve codes (n x k) for a factor (k x m); ``fresh`` are rows that have none yet.

    With ``changes`` statistics and price are how they differ from those of the old codes.
    """
    m, first = data.shape[1], bool(fresh.any())

    def improved(factor: Array, codes: Array, momentum: Any) -> tuple[Array, ...]:
        H, sweeps = factor.astype(data.dtype, copy=False), 0 if first else _sweeps(update)
        if sweeps and not changes and not penalties.any and one_pass.fits(data, codes):
            return one_pass.improve(data, H, arrays.gram(H.T), codes, sweeps, momentum)
        stats = penalties.for_codes(for_codes(data, H), m)
        if sweeps:
            new, y, gram = descent.hals_ahead(codes, *stats, sweeps, momentum)
        else:
            new = update(_first_codes(codes, stats, fresh, penalties) if first else codes, stats, t, codes)
            y = descent.extrapolate(new, np.where(fresh[:, None], new, codes) if first else codes, momentum)
            gram = arrays.gram(y)
        gram = gram - arrays.gram(codes) if changes else gram
        cross = arrays.times_codes(data, y - codes if changes else y).T
        return (new, gram, cross, y) if penalties.scaled else (new, gram, cross)

    if not first and arrays.keeps_still(data) and _is_steady(update, penalties):
        new, gram, cross = replayed(improved, data, (update, changes), factor, codes, momentum)
        return Improved(new, triangle(gram), cross, 0.0)
    new, gram, cross, *more = improved(factor, codes, momentum)
    cost = penalties.codes.times(m)
    price = sum((cost.price(y) - (cost.price(codes) if changes else 0) for y in more), 0.0)
    return Improved(new, triangle(gram), cross, price)


def improve_together(
    update: Update, data: Sequence[Data], factor: Array, codes: Array, fresh: Array, *, t: int, momentum: float
) -> list[Improved]:
    """Improve the codes of several clients, stacked (n x k), as :func:`improve_codes` does those of each, to the bit.

    Updates are of rows, wherever they stand: one call is for all. Products with data are of each client alone, since
    BLAS may add in another order where there are more rows; and they are what is sent.
    """
    ends, H = np.cumsum([X.shape[0] for X in data]).tolist(), factor.astype(codes.dtype, copy=False)
    parts, cross = [slice(*pair) for pair in pairwise([0, *ends])], np.empty_like(codes)
    for part, along in zip(parts, arrays.times_factor_each(data, H), strict=True):
        cross[part] = along
    stats, first = Stats(arrays.gram(H.T), cross), bool(fresh.any())
    new = update(_first_codes(codes, stats, fresh, UNPENALIZED) if first else codes, stats, t, codes)
    y = descent.extrapolate(new, np.where(fresh[:, None], new, codes) if first else codes, momentum)
    grams = triangles(np.stack([arrays.gram(y[part]) for part in parts]))
    sums = [arrays.times_codes(X, y[part]).T for X, part in zip(data, parts, strict=True)]
    return [Improved(new[part], gram, cross, 0.0) for part, gram, cross in zip(parts, grams, sums, strict=True)]


def nearly(data: Data, factor: Array) -> Array:
    """Return codes for a factor after a few sweeps: good enough for one that is on its way itself."""
    stats = for_codes(data, factor.astype(data.dtype, copy=False))
    return HALS(FIRST_SWEEPS)(np.zeros_like(stats.cross), stats)


def improve_factor(
    update: Update,
    F: Array,
    parts: Sequence[tuple[Any, Stats]],
    *,
    t: int,
    previous: Array,
    momentum: float,
    penalties: Penalties,
    rows: float,
) -> Renewed:
    """Improve the factor F = H^T (m x k) for statistics of ``rows`` rows; ``previous`` (k x m) is the one before.

    ``parts`` are features and their statistics: those of one part share a gram. Shares are of the data that components
    explain, ``<W_l H_l, X>`` of the sum: for an H that is optimal that of ``|W H|^2``.
    """

    def improved(F: Array, previous: Array, *sums: Array) -> tuple[Any, ...]:
        found, gained, explained = [], 0.0, 0.0
        for (part, _), gram, cross in zip(parts, sums[::2], sums[1::2], strict=True):
            stats = Stats(gram, arrays.contiguous(cross))
            priced = penalties.for_factor(stats, rows)
            living = priced if any(penalties.factor) else _alive(priced, F[part])  # what costs may as well go
            new = update(F[part], living, t, previous[part])
            gained += gain(priced, new)
            explained = explained + np.einsum("mk,mk->k", stats.cross, new)
            found.append(new)
        explained = np.maximum(explained, 0)
        H = arrays.contiguous(_together(found, [part for part, _ in parts]).T)
        return H, gained, explained / np.maximum(explained.sum(), TINY), _beside(H, previous.T)

    given = F, previous.T, *(a for _, (gram, cross) in parts for a in (mirrored(gram, F.shape[1]), cross))
    whole = all(isinstance(part, slice) for part, _ in parts)
    steady = whole and _is_steady(update, penalties)
    H, gained, share, before = replayed(improved, None, update, *given) if steady else improved(*given)
    return Renewed(H, gained, share, descent.extrapolate(H, before, momentum))


def _beside(H: Array, previous: Array) -> Array:
    """Return the previous factor (k x m) to extrapolate H from: as long as H where a component has strayed.

    ``W_l H_l`` does not depend on the length of H_l, and codes answer to it: with a momentum above 1/2 a component that
    has grown by 1 + g grows by more in the next round, its codes shrink, and in the end both leave the range of single
    precision. Extrapolated at one length the growth is ``momentum g``, and ends.
    """
    size = np.sqrt(np.einsum("km,km->k", H, H))
    strayed = (size > FAR) | (size * FAR < 1)
    if not isinstance(H, Placed) and not strayed.any():  # a device is not asked for a number
        return previous
    before = np.sqrt(np.einsum("km,km->k", previous, previous))
    return previous * np.where(strayed, size / np.maximum(before, TINY), 1.0)[:, None]


def _is_steady(update: Update, penalties: Penalties) -> bool:
    """Whether a half-step is the same work in every round, and looks at no number on its way."""
    return _sweeps(update) > 0 and not penalties.any


def _sweeps(update: Update) -> int:
    """Return how many sweeps of coordinate descent all rows have; 0 where an update is something else."""
    return update.sweeps if isinstance(update, HALS) and update.tol == 0 else 0


def _together(found: Sequence[Array], parts: Sequence[Any]) -> Array:
    """Return the rows of all parts, each where it belongs; what is all of them as it is."""
    if len(found) == 1:
        return found[0]
    whole = np.empty((sum(map(len, found)), found[0].shape[1]), found[0].dtype, like=found[0])
    for part, new in zip(parts, found, strict=True):
        whole[part] = new
    return whole


def _first_codes(codes: Array, stats: Stats, fresh: Array, penalties: Penalties) -> Array:
    """Give rows that take part for the first time a few more sweeps from where they begin."""
    if not fresh.any():
        return codes
    start = codes.copy()
    new = Stats(stats.gram, stats.cross[fresh])
    start[fresh] = HALS(FIRST_SWEEPS)(penalties.first(new), new)
    return start


def _alive(stats: Stats, F: Array) -> Stats:
    """Blank the statistics of components whose codes have vanished, so that no update divides by them.

    They keep their direction in H, come back as soon as a client uses them, and get another one if nobody does.
    """
    energy = np.diag(stats.gram) * np.einsum("mk,mk->k", F, F)
    used = energy > NEGLIGIBLE * energy.max(initial=0)
    if not isinstance(used, Placed) and used.all():  # a device is not waited for
        return stats
    keep = used.astype(np.float64)
    return Stats(stats.gram * np.outer(keep, keep), stats.cross * keep)
