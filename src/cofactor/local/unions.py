"""The search for the factor of a union of summaries: many short descents on little data, one long one on all of it.

The union of c clients at rank r has c r rows. Restarts see less: the columns with most energy, and, where there are
many rows, a summary of the summaries at twice the rank. They are halved as they go; the ones that are left go on on
all clients, components of the best one begin anew where that pays (:mod:`cofactor.local.anew`), and it goes on on all
columns too.

A server knows the gram of a client's codes, not the codes. Codes ``W_j C`` with C >= 0 are sure to be non-negative, but
most rows could be met better by a C with other signs. So the last descent is on rows of codes that are drawn: any
non-negative ones with that gram.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cofactor.local.descents import Descents, Found, advanced
from cofactor.local.init import random_factor
from cofactor.local.stacked import Stacked, Summary, stacked
from cofactor.local.threads import single_blas
from cofactor.types import Array

WIDE = 512
"""Columns that restarts see, where there are twice as many."""
OVER = 2
"""A union of more than twice so many rows per component is summarized at this multiple of the rank for restarts."""
SHORT = 6
"""Iterations between two halvings of the restarts."""
REDUCING = 12
"""Iterations in which a union is summarized for them."""
FINALISTS, LAST = 8, 2
"""Restarts that are left in the end, to say how sure the best one is, and those that are tried on all clients."""
SETTLING, BRIEFLY = 24, 12
"""Iterations of each finalist, and for a start."""
HAIR = 3e-2
"""A finalist that misses so much more of all data, of what the best one misses, is as good as that one. On ten stored
data sets at rank 10 it names 78 % of the components that other starts do not find, and 70 % with a third of it."""
NEXT = 3
"""With so many of the next best the best one is compared: another seed would hardly end at one of the others."""
DRAWN = 4
"""Rows of codes that are drawn for each component of a summary: measured on faces and expression data, twice as few
leave half of what can be gained, and all rows of the clients would gain as much again."""
FREE = 6
"""Iterations on them: drawn codes mix more than those of digits do, and more iterations would follow them."""
TRIED = 3
"""Pairs of components that one could stand for, and directions in which most is missed, that are tried together."""
TAKEN, BEGUN = 6, 2
"""Iterations on all clients in a start, and of each of these there, where one pair is enough."""
RENEWALS, PAYS = 4, 1e-3
"""Most components that begin anew, and the part of what is missed that each has to gain."""


def search(
    summaries: Sequence[Summary],
    rank: int,
    *,
    seed: int,
    restarts: int,
    iterations: int,
    drawn: int = 0,
    renews: bool = False,
) -> Found:
    """Return the best descent, after up to ``iterations`` on all columns, and the restarts that are as good.

    Without any it is a start for rounds on all rows, which cost less than iterations on all clients, and do more; for
    that single precision does. A few more iterations follow on ``drawn`` rows for each component of a summary; 0 keeps
    to codes ``W_j C`` with C >= 0. With ``renews`` components of the best one may begin anew: not where seeds are to
    show how sure a minimum is. A union of no more components than the rank is its own factor.
    """
    union = stacked(summaries)
    rng, m, alive = np.random.default_rng(seed), union.rows.shape[1], union.alive
    if len(alive) <= rank:
        H = np.vstack([union.rows[alive], random_factor(rank - len(alive), m, rng)])
        C = np.zeros((len(union.rows), rank))
        C[alive, np.arange(len(alive))] = 1.0
        kept = Descents.of(union, [H])
        kept.C[0] = C.reshape(kept.C[0].shape)
        return kept.found()._replace(factor=H, codes=kept.C[0])
    with single_blas():
        wide = m > 2 * WIDE
        index = union.widest(WIDE) if wide else np.arange(m)
        seen = union.columns(index) if wide else union
        seen = seen if iterations else seen.light()
        reduced = _reduced(seen, rank, rng)
        found = _advanced(_finalists(reduced, rank, rng, restarts), SETTLING if iterations else BRIEFLY)
        best, found = _on_all(seen, found, iterations, renews=renews)
        runs = _as_good(found)
        best = best.spread(union, index) if wide else best.on(union)
        best.settled[:] = False
        best.advance(iterations)
        return (best.freed(drawn, rng).advance(FREE) if drawn else best).found(runs)


def _on_all(seen: Stacked, found: Descents, iterations: int, *, renews: bool) -> tuple[Descents, Descents]:
    """Let the best go on on all clients, and components of the one that is best there begin anew; return it, and all.

    In a start, without ``iterations``, that is one of them, and for no longer than it takes to have codes of all.
    """
    reduced, settling = found.union, SETTLING if iterations else BRIEFLY
    last, longer = (LAST, 2 * SHORT) if iterations else (1, TAKEN)
    whole = found if reduced is seen else Descents(seen, found.F[:last]).advance(longer)
    first = int(whole.ranked()[0])
    found = found.some([first, *(i for i in range(len(found.F)) if i != first)])
    best = kept = whole.some([first])
    if renews:
        best = _renewed(best, min(iterations, SHORT), TRIED) if iterations else _renewed(best, BEGUN, 1)
    if best is not kept:
        found = Descents.joined([Descents(reduced, best.F).advance(settling), found])
    return best, found


def _renewed(run: Descents, brief: int, pairs: int = TRIED) -> Descents:
    """Return a run in which components began anew, as long as that pays; tries have ``brief`` iterations to show it.

    Measured on topics of which clients have their own, at the rank at which all are found: without it one search in two
    ended with a strong one split and two weak ones in one, and the fit 2 to 5 % higher.
    """
    for _ in range(RENEWALS if run.F.shape[2] > 1 else 0):
        tried = advanced(run.begun(pairs, TRIED), brief)
        if not (better := np.flatnonzero(tried.loss < run.loss)).size:
            break
        tried = tried.some(better).advance(SHORT)
        if not (better := np.flatnonzero(tried.loss < run.loss - PAYS * run.missed)).size:
            break
        run = tried.some(better[:1])
    return run


def _as_good(found: Descents) -> list[Array]:
    """Return the factors of the first and of the next best that lose hardly more; none where there are no others."""
    most = found.loss[0] + HAIR * (found.loss[0] + found.union.rest)
    as_good = found.loss[: 1 + NEXT] <= most
    as_good[0] = True
    return found.some(np.flatnonzero(as_good)).factors() if len(found.F) > 1 else []


def _reduced(union: Stacked, rank: int, rng: np.random.Generator) -> Stacked:
    """Return the union, or a summary of it at a multiple of the rank where it has many more rows than that."""
    if len(union.rows) <= 2 * OVER * rank:
        return union
    first = random_factor(OVER * rank, union.rows.shape[1], rng)
    return Descents.of(union, [first]).advance(REDUCING).summarized()


def _finalists(union: Stacked, rank: int, rng: np.random.Generator, restarts: int) -> Descents:
    """Let restarts go a short way, keep the better half, and again."""
    weight = np.sqrt(np.einsum("crr->cr", union.grams)).ravel() * np.linalg.norm(union.rows, axis=1)
    runs = Descents.of(union, [_start(union, weight, rank, rng, i) for i in range(restarts)])
    while True:
        runs = _advanced(runs, SHORT)
        if len(runs.F) <= FINALISTS:
            return runs
        runs = runs.some(slice(max(len(runs.F) // 2, FINALISTS)))


def _advanced(runs: Descents, iterations: int) -> Descents:
    """Let every run go on; return them, the best first."""
    whole = advanced(runs, iterations)
    return whole.some(whole.ranked())


def _start(union: Stacked, weight: Array, rank: int, rng: np.random.Generator, number: int) -> Array:
    """Return a random factor, or (every second time) rows of the summaries, drawn by their ``weight``."""
    m = union.rows.shape[1]
    if number % 2 == 0:
        return random_factor(rank, m, rng)
    count = min(rank, int(np.count_nonzero(weight)))
    rows = union.rows[rng.choice(len(weight), count, replace=False, p=weight / weight.sum())]
    return np.vstack([rows, random_factor(rank - count, m, rng)])
