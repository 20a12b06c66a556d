"""The pooled answer without pooling: exact rounds with their starts, one upload, and what many starts agree on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cofactor.combine.aggregators import Agreed, Mean, Union
from cofactor.combine.align import Lap
from cofactor.combine.consensus import DENSITY
from cofactor.local.brief import ROWS_PER_COMPONENT, Brief
from cofactor.local.penalties import Penalties, Penalty
from cofactor.local.updates import HALS
from cofactor.method import Method
from cofactor.methods.alone import Alone
from cofactor.methods.beta import divergent
from cofactor.methods.integrated import Integrated
from cofactor.methods.one_shot import OneShot, Summarized
from cofactor.methods.raced import Chosen, raced
from cofactor.methods.spanned import Own, Spanned
from cofactor.methods.staged import KEPT, Staged
from cofactor.methods.summed import NARROW, Summed
from cofactor.methods.twin import ROUNDS, Twin
from cofactor.types import CofactorError

LOCAL, ROUNDS_ALONE, COLUMNS = 2, 6, 1024
"""The start of ``exact``: local rank (times the rank), rounds and columns of a client alone.

More components than asked for leave room to choose; measured on digits, faces, text and cells, few rounds at twice the
rank end lower than many at the rank, and cost less.
"""


RESTARTS, RESTARTS_ALONE = 24, 8
"""Restarts on the union of summaries, halved as they go: they cost little there, and say how sure a component is. On a
single summary they say nothing of that."""


STARTS = 8
"""Random starts that are raced where clients lack features: one alone ends up to ten times as high as the best."""


LARGE, ALONE, PARTED = 0.5, 10.0, 10
"""From ``LARGE`` on, an overlap makes half-problems with many minima. ``PARTED`` rounds at ``ALONE`` find one in which
rows have a component each, which costs nothing, whatever the overlap; measured, others end up to twice as high."""


def exact(
    rank: int,
    *,
    start: str = "summaries",
    momentum: float = 0.5,
    sweeps: int | None = None,
    local_rank: int | None = None,
    restarts: int = RESTARTS,
    groups: tuple[int, ...] | None = None,
    codes_penalty: tuple[float, float] = (0.0, 0.0),
    factor_penalty: tuple[float, float] = (0.0, 0.0),
    overlap: float = 0.0,
) -> Method:
    """The pooled answer from sums of statistics, after a one-upload start.

    ``start`` is "summaries" (fewest rounds), "own" (for one client: see :func:`of_one_client`), "svd" (the same from
    sums), "moments" or "lap" (when only sums may be seen) or "random". Where clients lack features, ``groups`` is
    :func:`cofactor.local.columns.groups` of theirs, and the start is "random" or, with any other, the best of some
    random ones. ``sweeps`` of a half-step are 8, of fewer than 128 features more as rounds go on, from 2000 on 4.
    Penalties are ``(l1, l2)``, of every code for each feature, and of every entry of the factor for each row;
    ``overlap`` is that of components that are used in the same rows for the same features: with one, "own" and "svd"
    are "summaries", and a large one begins with a few rounds of a larger one yet, in which every row has one component.
    """
    held = Penalties(Penalty(*codes_penalty), Penalty(*factor_penalty), overlap)
    update = HALS(sweeps) if sweeps else None
    method: Any = Summed(rank, update, momentum, groups=groups, penalties=held, patient=True)
    if overlap >= LARGE:
        apart = replace(method, penalties=replace(held, overlap=max(overlap, ALONE)), rounds=PARTED)
        method = Staged(apart, PARTED, method)
    if groups is not None:
        return method if start == "random" else raced(method, STARTS)
    start = "summaries" if overlap and start in ("own", "svd") else start
    return _started(start, method, local_rank=local_rank, restarts=restarts)


def of_one_client(rank: int, rows: int | None, features: int | None) -> dict[str, Any]:
    """Options of ``exact`` where one client holds all rows: singular vectors, unless data are narrow and rows many.

    Narrow data are often of many units, and then what singular vectors say of the small ones is rounding: it begins as
    several clients do, with fewer restarts, since its summary has few components. Of few rows a summary, which has half
    as many components, says too little.
    """
    narrow = features is not None and features < NARROW
    few = rows is not None and rows < ROWS_PER_COMPONENT * LOCAL * rank
    return {"restarts": RESTARTS_ALONE} if narrow and not few else {"start": "own"}


def _started(
    start: str, method: Any, *, local_rank: int | None = None, restarts: int = RESTARTS, stages: type[Staged] = Staged
) -> Method:
    """Return the method after a start by name."""
    rank = method.rank
    starts: dict[str, Callable[[], Summarized | Spanned | Own | OneShot | Twin | None]] = {
        "summaries": lambda: _start(rank, local_rank or LOCAL * rank, restarts),
        "svd": lambda: Spanned(rank),
        "own": lambda: Own(rank),
        "moments": lambda: Twin(rank, Alone(Summed(rank), ROUNDS)),
        "lap": lambda: OneShot(rank, Alone(Summed(rank)), Mean(), align=Lap(), passes=3),
        "random": lambda: None,
    }
    if start not in starts:
        raise CofactorError(f"expected start to be one of {', '.join(starts)}; found {start!r}.")
    first = starts[start]()
    return method if first is None else stages(first, first.rounds or 1, method)


def shared_own(rank: int, *, weight: float = 0.1, start: str = "summaries") -> Method:
    """Shared and own programs: every client adds to the factor a part of its own, which stays there (LIGER)."""
    if not (np.isfinite(weight) and weight > 0):
        raise CofactorError(f"weight must be a number > 0. Found {weight}.")
    return _started(start, Integrated(rank, float(weight)))


def exact_beta(
    rank: int,
    *,
    start: str = "summaries",
    beta: float = 1.0,
    momentum: bool = True,
    codes_penalty: tuple[float, float] = (0.0, 0.0),
    factor_penalty: tuple[float, float] = (0.0, 0.0),
) -> Method:
    """The pooled answer under a beta-divergence (1 is Kullback-Leibler, 0 Itakura-Saito), from sums.

    ``start`` as for ``exact``: summaries are of least squares, and tell clusters of rows apart all the same. Measured
    on counts, topics and cells, most random ones end 4 to 17 % higher where clients have topics of their own. Penalties
    are ``(l1, l2)``, of every code for each feature, and of every entry of the factor for each row. With absent clients
    the start is random: a few clients' summaries are no better, and multiplied, what they lack comes back slowly.
    """
    held: dict[str, Any] = {"codes_penalty": codes_penalty, "factor_penalty": factor_penalty}
    return _started(start, divergent(rank, beta=beta, momentum=momentum, **held), stages=Chosen)


def _start(rank: int, local_rank: int, restarts: int) -> Summarized:
    """Summaries for a start: a few rounds alone at a higher rank, one upload, a union that is searched, not solved."""
    union = Union(rank, restarts, False, iterations=0, drawn=0)
    return Summarized(OneShot(rank, Brief(ROUNDS_ALONE, COLUMNS), union, local_rank))


def oneshot(rank: int, *, local_rank: int | None = None, restarts: int = RESTARTS) -> Summarized:
    """One upload of mergeable summaries per client."""
    return Summarized(OneShot(rank, Alone(Summed(rank)), Union(rank, restarts), local_rank))


TOLD = (*KEPT, "silhouette", "clustergram")
"""What a consensus tells of its components."""
AGREEING = 3
"""Local rank (times the rank) of a consensus: at the rank itself one client leaves its starts nothing to differ in."""
SETTLES = 30
"""Rounds of ``exact`` after a consensus that is asked for by its starts: ``consensus=100``, `cofactor consensus`."""


def consensus(
    rank: int, *, starts: int = 100, density: float = DENSITY, local_rank: int | None = None, settles: int = 0
) -> Method:
    """What many starts agree on (cNMF), from one upload of summaries: strays out, clusters, medians.

    ``density`` is the mean distance to its neighbours above which a component is a stray. The starts see summaries, of
    ``local_rank`` components each (three times the rank), not rows: ``settles`` rounds of ``exact`` after it take the
    components to where all rows want them.
    """
    if starts < 2:
        raise CofactorError(f"starts: a consensus needs at least two. Found {starts}.")
    agreed = Summarized(
        OneShot(rank, Alone(Summed(rank)), Agreed(rank, starts, density), local_rank or AGREEING * rank)
    )
    return Staged(agreed, 1, Summed(rank, rounds=settles), TOLD) if settles else agreed
