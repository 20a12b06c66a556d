"""Names to compositions: every published method is an arrangement of the same pieces."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Any

from cofactor.combine.aggregators import Barycentric, Mean
from cofactor.combine.align import Knn, Lap, LapRho, Sinkhorn, SinkhornRho
from cofactor.combine.barycenter import FixedPoint
from cofactor.local.updates import IPALM, MU
from cofactor.method import Method
from cofactor.methods.alone import Alone
from cofactor.methods.averaged import Averaged
from cofactor.methods.beta import gapped
from cofactor.methods.boolean import BOOLEAN
from cofactor.methods.clusters import k_means, simplex
from cofactor.methods.dp_nmf import dp_nmf
from cofactor.methods.fedmavg import fedmavg, fedmgs
from cofactor.methods.moments import Moments, moments
from cofactor.methods.observed import exact_als, masked_fedmavg
from cofactor.methods.one_shot import OneShot
from cofactor.methods.pooled import consensus, exact, exact_beta, of_one_client, oneshot, shared_own
from cofactor.methods.ranged import Ranged, ranged
from cofactor.methods.sketched import BLOCKED
from cofactor.methods.summed import Summed
from cofactor.methods.syn import asyn_sd, asyn_ssd_v, syn_sd, syn_ssd_u, syn_ssd_uv, syn_ssd_v
from cofactor.methods.twin import ROUNDS
from cofactor.methods.values import check_value
from cofactor.plan import is_whole
from cofactor.privacy.allowance import WHOLE, Parts, Privacy
from cofactor.schedules import Switch
from cofactor.types import CofactorError, unknown


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


def dp_moments(rank: int, *, privacy: Privacy, outliers: float | None = None, parts: Parts = WHOLE) -> Moments:
    """Private NMF by released moments: a noisy mean, a noisy centred second moment, the factor of their twin.

    ``outliers`` is the threshold, in units of an average entry of a row, above which a residual is kept out of codes.
    """
    factorize = Alone(Summed(rank), ROUNDS)
    return moments(rank, privacy=privacy, factorize=factorize, outliers=outliers, parts=parts)


def dp_range(
    rank: int, *, privacy: Privacy, width: int | None = None, outliers: float | None = None, parts: Parts = WHOLE
) -> Ranged:
    """Private NMF by the range of the second moment: for hundreds of clients, with uploads of O(r m) numbers.

    ``width`` is r, the columns of the sketch (2 k + 20 unless given); ``outliers`` as in dp-moments.
    """
    chosen = 2 * rank + 20 if width is None else width
    if not isinstance(chosen, Integral) or chosen < rank:
        raise CofactorError(f"width: expected a whole number of at least the rank {rank}. Found {chosen}.")
    factorize = Alone(Summed(rank), ROUNDS)
    return ranged(rank, privacy=privacy, factorize=factorize, width=chosen, outliers=outliers, parts=parts)


@dataclass(frozen=True)
class Entry:
    """A name, what its data are, and where it comes from.

    ``sums`` is what clients send where the server needs only the sum of it ("" where it needs every message);
    ``streams`` says that clients may answer one by one, ``private`` that it adds noise and needs a budget.
    ``secure_options`` and ``private_options`` are what options are, unless they are given, where only sums may be seen,
    and where nothing may be seen without noise; ``started_options``, where a start is given, which its own would
    replace; ``alone(rank, rows, features)``, where there is one client.
    """

    name: str
    make: Callable[..., Method]
    kind: str = "real"
    paper: str = ""
    sums: str = ""
    streams: bool = False
    private: bool = False
    alone: Callable[[int, int | None, int | None], Mapping[str, Any]] = lambda rank, rows, features: {}
    secure_options: Mapping[str, Any] = field(default_factory=dict)
    private_options: Mapping[str, Any] = field(default_factory=dict)
    started_options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def taken(self) -> Mapping[str, inspect.Parameter]:
        """The options that it takes, with what they may be and are unless they are given."""
        return dict(list(inspect.signature(self.make).parameters.items())[1:])

    @property
    def options(self) -> list[str]:
        """Their names."""
        return list(self.taken)

    def default(self, option: str) -> Any:
        """The value of an option that is not given."""
        return self.taken[option].default

    @property
    def what(self) -> str:
        """One sentence."""
        return (inspect.getdoc(self.make) or "").splitlines()[0]


FNMF, DSANLS, DPNMF, FEDMAVG = "FNMF", "DSANLS", "DP-NMF", "FedMAvg"
FACTORS, STATISTICS = "weighted factors", "statistics of codes and data"

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "exact",
        exact,
        sums=STATISTICS,
        alone=of_one_client,
        secure_options={"start": "moments"},
        private_options={"start": "random"},
        started_options={"start": "random"},
    ),
    Entry("oneshot", oneshot),
    Entry("consensus", consensus),
    Entry(
        "exact-beta",
        exact_beta,
        sums="majorizers of the factor",
        secure_options={"start": "moments"},
        private_options={"start": "random"},
        started_options={"start": "random"},
    ),
    Entry("exact-gaps", gapped, "gaps", sums="majorizers of the factor", started_options={"starts": 1}),
    Entry(
        "shared-own",
        shared_own,
        sums=STATISTICS,
        secure_options={"start": "moments"},
        started_options={"start": "random"},
    ),
    *(
        Entry(name, _fnmf(align, what), paper=FNMF, sums=FACTORS, secure_options={"sums": True})
        for name, align, what in (
            ("fnmf-lap", Lap(), "a permutation"),
            ("fnmf-lap-rho", Switch(Lap(), LapRho()), "a partial permutation of correlated pairs"),
            ("fnmf-sinkhorn", Sinkhorn(), "optimal transport"),
            ("fnmf-sinkhorn-rho", Switch(Sinkhorn(), SinkhornRho()), "optimal transport of correlated pairs"),
            ("fnmf-knn", Knn(), "nearest neighbours"),
        )
    ),
    Entry("fedavg", fedavg, paper=FNMF, sums=FACTORS),
    Entry("fedprox", fedprox, paper=FNMF, sums=FACTORS),
    Entry("ipalm", ipalm, paper=FNMF, sums="factors"),
    Entry("mur", mur, paper=FNMF, sums="factors"),
    Entry("oneshot-lap", oneshot_lap, paper=FNMF),
    Entry("fedmavg", fedmavg, paper=FEDMAVG, sums=FACTORS),
    Entry("fedmgs", fedmgs, paper=FEDMAVG, sums="gradients and grams"),
    Entry("syn-sd", syn_sd, paper=DSANLS, sums=FACTORS),
    Entry("syn-ssd-u", syn_ssd_u, paper=DSANLS, sums="weighted factors and sketches of them"),
    Entry("syn-ssd-v", syn_ssd_v, paper=DSANLS, sums=FACTORS),
    Entry("syn-ssd-uv", syn_ssd_uv, paper=DSANLS, sums="weighted factors and sketches of them"),
    Entry("asyn-sd", asyn_sd, paper=DSANLS, sums=FACTORS, streams=True),
    Entry("asyn-ssd-v", asyn_ssd_v, paper=DSANLS, sums=FACTORS, streams=True),
    Entry("dp-moments", dp_moments, sums="rows and their second moment", private=True),
    Entry("dp-range", dp_range, sums="rows and sketches of their second moment", private=True),
    Entry("dp-nmf", dp_nmf, paper=DPNMF, sums=STATISTICS, private=True),
    *(Entry(name, make, "blocks", DSANLS, "products of blocks") for name, make in BLOCKED.items()),
    *(Entry(name, make, "boolean", paper, sums) for name, (make, paper, sums) in BOOLEAN.items()),
    Entry("exact-als", exact_als, "ratings", sums="statistics of every item"),
    Entry("masked-fedmavg", masked_fedmavg, "ratings", FEDMAVG, "pulls at every item"),
    Entry("k-means", k_means, "clusters"),
    Entry("simplex", simplex, "clusters", FEDMAVG),
)
"""Every method; of each kind the default first."""

CATALOG = {entry.name: entry for entry in ENTRIES}
KINDS = ("real", "gaps", "private", "blocks", "boolean", "ratings", "clusters")
"""What data are; private methods are for real data, blocks are of one matrix."""


def names(kind: str = "real") -> list[str]:
    """Return the names of one of ``KINDS``, the default first.

    >>> names("clusters")
    ['k-means', 'simplex']
    """
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    if kind == "private":
        return [entry.name for entry in ENTRIES if entry.private]
    return [entry.name for entry in ENTRIES if entry.kind == kind and not entry.private]


def find(name: str, *more: str) -> Entry:
    """Return the entry of a name; ``more`` are other names that would have been fine."""
    if name not in CATALOG:
        raise unknown("method", name, [*CATALOG, *more])
    return CATALOG[name]


def make(name: str, rank: int, **options: Any) -> Method:
    """Build a method by name.

    >>> make("fedprox", 5, anchor=0.2).anchor
    0.2
    """
    entry = find(name)
    if not (is_whole(rank) and rank >= 1):
        raise CofactorError(f"rank must be a whole number >= 1. Found {rank!r}.")
    check_options(entry, options)
    for needed, why in (
        ("shape", "depends on the matrix: expected its shape=(rows, features)"),
        ("privacy", "adds noise: expected privacy=Privacy(epsilon=..., delta=...)"),
    ):
        if needed in entry.options and options.get(needed) is None:
            raise CofactorError(f"method {name!r} {why}, found none.")
    return entry.make(rank, **options)


def check_options(entry: Entry, options: Mapping[str, Any]) -> None:
    """Refuse options that a method does not have, and values that they cannot have."""
    for option, value in options.items():
        if option not in entry.taken:
            raise unknown(f"option of method {entry.name!r}", option, entry.options)
        check_value(entry.name, option, str(entry.taken[option].annotation), value)
