"""Names to compositions: every published method is an arrangement of the same pieces."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
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
from cofactor.methods.fedmavg import GRADIENT
from cofactor.methods.masked import MASKED
from cofactor.methods.one_shot import OneShot, summaries
from cofactor.methods.sketched import BLOCKED
from cofactor.methods.summed import Summed
from cofactor.methods.syn import SYN
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

    ``start`` is "summaries" (best), "lap" (when only sums may be seen) or "random". Where clients lack features,
    ``groups`` is :func:`cofactor.local.columns.groups` of theirs, and the start is random.
    """
    if groups is not None:
        start = "random"
    starts: dict[str, Callable[[], OneShot | None]] = {
        "summaries": lambda: summaries(rank, local_rank=local_rank, restarts=restarts, required=False),
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
    """Return the maker of FNMF with one alignment, at the clients and in the server's fixed-point barycenter."""

    def make(rank: int, *, sweeps: int = 50, gamma: float = 0.01, common_start: bool = False) -> Averaged:
        center = Barycentric(FixedPoint(align))
        return Averaged(rank, aggregator=center, sweeps=sweeps, align=align, gamma=gamma, common_start=common_start)

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


def names(*, boolean: bool = False, masked: bool = False, blocked: bool = False) -> list[str]:
    """Return the names that :func:`make` knows, the default first.

    They are for real data, for bits, for observed entries, or for row and column blocks of one matrix.
    """
    return list(BOOLEAN if boolean else MASKED if masked else BLOCKED if blocked else MAKERS)


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


def find(name: str) -> Callable[..., Method]:
    """Return the function that builds the named method; its docstring says what it is."""
    makers = MAKERS | BOOLEAN | MASKED | BLOCKED | {"auto": auto}
    if name not in makers:
        near = difflib.get_close_matches(name, makers, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise CofactorError(f"unknown method {name!r}.{hint} Expected one of: {', '.join(makers)}.")
    return makers[name]


def options_of(name: str) -> list[str]:
    """Return the options that the named method takes."""
    return list(inspect.signature(find(name)).parameters)[1:]
