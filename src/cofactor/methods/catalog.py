"""Names to compositions: every published method is an arrangement of the same pieces."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from cofactor.combine.aggregators import Barycentric, Mean
from cofactor.combine.align import Knn, Lap, LapRho, Sinkhorn, SinkhornRho
from cofactor.combine.barycenter import FixedPoint
from cofactor.local.updates import HALS, IPALM, MU
from cofactor.method import Method
from cofactor.methods.alone import Alone
from cofactor.methods.averaged import Averaged
from cofactor.methods.boolean import BOOLEAN
from cofactor.methods.choice import choose
from cofactor.methods.clusters import CLUSTERS
from cofactor.methods.fedmavg import GRADIENT
from cofactor.methods.masked import MASKED
from cofactor.methods.one_shot import OneShot, summaries
from cofactor.methods.private import PRIVATE, privately
from cofactor.methods.sketched import BLOCKED
from cofactor.methods.summed import Summed
from cofactor.methods.syn import SYN
from cofactor.methods.twin import Twin
from cofactor.privacy.plan import Privacy
from cofactor.privacy.secure_sum import threshold
from cofactor.schedules import Switch
from cofactor.types import CofactorError


def exact(
    rank: int,
    *,
    start: str = "summaries",
    momentum: float = 0.5,
    sweeps: int = 3,
    local_rank: int | None = None,
    restarts: int = 8,
    groups: tuple[int, ...] | None = None,
) -> Summed:
    """The pooled answer from sums of statistics, after a one-upload start.

    ``start`` is "summaries" (best), "moments" or "lap" (when only sums may be seen) or "random". Where clients lack
    features, ``groups`` is :func:`cofactor.local.columns.groups` of theirs, and the start is random.
    """
    if groups is not None:
        start = "random"
    starts: dict[str, Callable[[], OneShot | Twin | None]] = {
        "summaries": lambda: summaries(rank, local_rank=local_rank, restarts=restarts, required=False),
        "moments": lambda: Twin(rank),
        "lap": lambda: OneShot(rank, Alone(Summed(rank)), Mean(), align=Lap(), passes=3),
        "random": lambda: None,
    }
    if start not in starts:
        raise CofactorError(f"exact: expected start to be one of {', '.join(starts)}; found {start!r}.")
    return Summed(rank, HALS(sweeps), momentum, starts[start](), groups=groups)


def oneshot(rank: int, *, local_rank: int | None = None, restarts: int = 8) -> OneShot:
    """One upload of mergeable summaries per client."""
    return summaries(rank, local_rank=local_rank, restarts=restarts)


def _fnmf(align: Any, what: str) -> Callable[..., Averaged]:
    """Return the maker of FNMF with one alignment, at the clients and in the server's fixed-point barycenter.

    With ``sums`` clients align what they upload to the broadcast factor, and the server needs the sum of it only.
    """

    def make(
        rank: int, *, sweeps: int = 50, gamma: float = 0.01, common_start: bool = False, sums: bool = False
    ) -> Averaged:
        center = Mean() if sums else Barycentric(FixedPoint(align))
        options = {"sweeps": sweeps, "align": align, "gamma": gamma, "common_start": common_start}
        return Averaged(rank, aggregator=center, aligned_upload=sums, **options)

    make.__doc__ = f"FNMF, components matched by {what}."
    return make


def fedavg(rank: int, *, sweeps: int = 50, common_start: bool = False, anchor: float = 0.0) -> Averaged:
    """Weighted mean of the clients' factors after local steps (McMahan et al. 2017)."""
    return Averaged(rank, sweeps=sweeps, anchor=anchor, common_start=common_start)


def fedprox(rank: int, *, sweeps: int = 50, common_start: bool = True, anchor: float = 0.1) -> Averaged:
    """FedAvg with an anchor at the broadcast factor (Li et al. 2020)."""
    return fedavg(rank, sweeps=sweeps, common_start=common_start, anchor=anchor)


def ipalm(rank: int, *, sweeps: int = 500) -> OneShot:
    """Mean of independent inertial PALM factorizations (baseline of the FNMF paper)."""
    return OneShot(rank, Alone(Averaged(rank, IPALM(), sweeps=sweeps), rounds=1), Mean(weighted=False))


def mur(rank: int, *, sweeps: int = 500) -> OneShot:
    """Mean of independent multiplicative-update factorizations (baseline of the FNMF paper)."""
    return OneShot(rank, Alone(Averaged(rank, MU(), sweeps=sweeps), rounds=1), Mean(weighted=False))


def oneshot_lap(rank: int) -> OneShot:
    """Barycenter of independent factorizations, components matched by a permutation."""
    return OneShot(rank, Alone(Summed(rank)), Barycentric(FixedPoint(Lap())))


def auto(rank: int, *, shape: tuple[int, int], density: float = 1.0, clients: int = 1) -> Method:
    """The method that :func:`cofactor.methods.choice.choose` names for such data."""
    name = choose(shape, rank, density=density, clients=clients).method
    return make(name, rank, **({"shape": shape} if name in BLOCKED else {}))


MAKERS: dict[str, Callable[..., Method]] = {
    "exact": exact,
    "oneshot": oneshot,
    "fnmf-lap": _fnmf(Lap(), "a permutation"),
    "fnmf-lap-rho": _fnmf(Switch(Lap(), LapRho()), "a partial permutation of correlated pairs"),
    "fnmf-sinkhorn": _fnmf(Sinkhorn(), "optimal transport"),
    "fnmf-sinkhorn-rho": _fnmf(Switch(Sinkhorn(), SinkhornRho()), "optimal transport of correlated pairs"),
    "fnmf-knn": _fnmf(Knn(), "nearest neighbours"),
    "fedavg": fedavg,
    "fedprox": fedprox,
    "ipalm": ipalm,
    "mur": mur,
    "oneshot-lap": oneshot_lap,
    **GRADIENT,
    **SYN,
}


KINDS: dict[str, dict[str, Callable[..., Method]]] = {
    "real": MAKERS,
    "private": PRIVATE,
    "blocks": BLOCKED,
    "boolean": BOOLEAN,
    "ratings": MASKED,
    "clusters": CLUSTERS,
}
"""The makers by what their data are; private methods are for real data, blocks are of one matrix."""


def names(kind: str = "real") -> list[str]:
    """Return the names of one of ``KINDS``, the default first.

    >>> names("clusters")
    ['k-means', 'simplex']
    """
    if kind not in KINDS:
        raise CofactorError(f"kind: expected one of {', '.join(KINDS)}; found {kind!r}.")
    return list(KINDS[kind])


def make(name: str, rank: int, **options: Any) -> Method:
    """Build a method by name.

    >>> make("fedprox", 5, anchor=0.2).anchor
    0.2
    """
    maker = find(name)
    if rank != int(rank) or rank < 1:
        raise CofactorError(f"rank must be a whole number >= 1. Found {rank}.")
    known = options_of(name)
    for option in options:
        if option not in known:
            raise CofactorError(f"method {name!r} has no option {option!r}. Expected one of: {', '.join(known)}.")
    if "shape" in known and "shape" not in options:
        raise CofactorError(f"method {name!r} depends on the matrix: expected its shape=(rows, features), found none.")
    return maker(rank, **options)


def make_for(
    name: str,
    rank: int,
    options: Mapping[str, Any],
    *,
    participants: int,
    rounds: int,
    privacy: Privacy | None = None,
    secure: bool = False,
) -> Method:
    """Build a method by name for a run: for secure sums, and private over its whole plan if that is asked for.

    ``exact`` then starts where sums allow it: at random with privacy, at the moments of all rows with secure
    summation, which also makes FNMF align at the clients.
    """
    if name in PRIVATE:
        if privacy is None:
            raise CofactorError(f"method {name!r}: expected privacy=Privacy(epsilon=..., delta=...). Found none.")
        return make(name, rank, privacy=privacy, parts=threshold(participants) if secure else 1, **options)
    if name == "exact" and (secure or privacy):
        options = {"start": "random" if privacy else "moments", **options}
    if secure and "sums" in options_of(name):
        options = {"sums": True, **options}
    return adapt(make(name, rank, **options), participants=participants, rounds=rounds, privacy=privacy, secure=secure)


def adapt(
    method: Method, *, participants: int, rounds: int, privacy: Privacy | None = None, secure: bool = False
) -> Method:
    """Return a method as it is, or its private form for a run of so many participants and rounds."""
    if privacy is None:
        return method
    return privately(method, privacy, rounds=rounds, parts=threshold(participants) if secure else 1)


def find(name: str) -> Callable[..., Method]:
    """Return the function that builds the named method; its docstring says what it is."""
    makers = {name: maker for kind in KINDS.values() for name, maker in kind.items()} | {"auto": auto}
    if name not in makers:
        near = difflib.get_close_matches(name, makers, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise CofactorError(f"unknown method {name!r}.{hint} Expected one of: {', '.join(makers)}.")
    return makers[name]


def options_of(name: str) -> list[str]:
    """Return the options that the named method takes."""
    return list(inspect.signature(find(name)).parameters)[1:]
