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
from cofactor.methods.one_shot import OneShot, summaries
from cofactor.methods.summed import Summed
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
) -> Summed:
    """Pooled answer from sums of statistics; ``start`` is "summaries", "lap" (sums only) or "random"."""
    starts: dict[str, Callable[[], OneShot | None]] = {
        "summaries": lambda: summaries(rank, local_rank=local_rank, restarts=restarts, required=False),
        "lap": lambda: OneShot(rank, Alone(Summed(rank)), Mean(), align=Lap(), passes=3),
        "random": lambda: None,
    }
    if start not in starts:
        raise CofactorError(f"exact: expected start to be one of {', '.join(starts)}; found {start!r}.")
    return Summed(rank, HALS(sweeps), momentum, starts[start]())


def oneshot(rank: int, *, local_rank: int | None = None, restarts: int = 8) -> OneShot:
    """One upload of mergeable summaries per client."""
    return summaries(rank, local_rank=local_rank, restarts=restarts)


def _fnmf(align: Any) -> Callable[..., Averaged]:
    def make(rank: int, *, sweeps: int = 50, gamma: float = 0.01, common_start: bool = False) -> Averaged:
        """FNMF with one of its alignments, at the clients and in the server's fixed-point barycenter."""
        center = Barycentric(FixedPoint(align))
        return Averaged(rank, aggregator=center, sweeps=sweeps, align=align, gamma=gamma, common_start=common_start)

    return make


def fedavg(rank: int, *, sweeps: int = 50, common_start: bool = False, anchor: float = 0.0) -> Averaged:
    """Weighted mean of the clients' factors after local steps (McMahan et al. 2017)."""
    return Averaged(rank, sweeps=sweeps, anchor=anchor, common_start=common_start)


def fedprox(rank: int, *, sweeps: int = 50, common_start: bool = True, anchor: float = 0.1) -> Averaged:
    """FedAvg with an anchor at the broadcast factor (Li et al. 2020)."""
    return fedavg(rank, sweeps=sweeps, common_start=common_start, anchor=anchor)


def ipalm(rank: int, *, sweeps: int = 500) -> OneShot:
    """One-shot mean of independent inertial PALM factorizations (the FNMF paper's baseline)."""
    return OneShot(rank, Alone(Averaged(rank, IPALM(), sweeps=sweeps), rounds=1), Mean(weighted=False))


def mur(rank: int, *, sweeps: int = 500) -> OneShot:
    """One-shot mean of independent multiplicative-update factorizations (the FNMF paper's baseline)."""
    return OneShot(rank, Alone(Averaged(rank, MU(), sweeps=sweeps), rounds=1), Mean(weighted=False))


def oneshot_lap(rank: int) -> OneShot:
    """One-shot LAP barycenter of independent factorizations."""
    return OneShot(rank, Alone(Summed(rank)), Barycentric(FixedPoint(Lap())))


MAKERS: dict[str, Callable[..., Method]] = {
    "exact": exact,
    "oneshot": oneshot,
    "fnmf-lap": _fnmf(Lap()),
    "fnmf-lap-rho": _fnmf(Switch(Lap(), LapRho())),
    "fnmf-sinkhorn": _fnmf(Sinkhorn()),
    "fnmf-sinkhorn-rho": _fnmf(Switch(Sinkhorn(), SinkhornRho())),
    "fnmf-knn": _fnmf(Knn()),
    "fedavg": fedavg,
    "fedprox": fedprox,
    "ipalm": ipalm,
    "mur": mur,
    "oneshot-lap": oneshot_lap,
}


def names() -> list[str]:
    """Return every name that :func:`make` knows, the default first."""
    return list(MAKERS)


def make(name: str, rank: int, **options: Any) -> Method:
    """Build a method by name.

    >>> make("fedprox", 5, anchor=0.2).anchor
    0.2
    """
    if name not in MAKERS:
        near = difflib.get_close_matches(name, MAKERS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise CofactorError(f"unknown method {name!r}.{hint} Expected one of: {', '.join(MAKERS)}.")
    known = list(inspect.signature(MAKERS[name]).parameters)[1:]
    for option in options:
        if option not in known:
            raise CofactorError(f"method {name!r} has no option {option!r}. Expected one of: {', '.join(known)}.")
    return MAKERS[name](rank, **options)
