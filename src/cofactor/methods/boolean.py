"""Boolean methods by name: compositions of the same pieces in the Boolean space."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cofactor.boolean import elbmf
from cofactor.boolean.binary import Binary
from cofactor.boolean.cube import Boolean
from cofactor.boolean.elbmf import Relaxation
from cofactor.boolean.factorizers import Adaptive, Asso, Plain, Polished
from cofactor.boolean.factorizers import catalog as factorizers
from cofactor.boolean.prox import Prox, alb_prox, elb_prox
from cofactor.combine.align import Lap
from cofactor.combine.ballots import Ballot, BooleanUnion, ProximalMean
from cofactor.combine.ballots import catalog as rules
from cofactor.method import Method
from cofactor.methods.averaged import Averaged
from cofactor.methods.boolean_sweeps import Trial, lengths, swept
from cofactor.methods.gathered import gathered, turn_of
from cofactor.methods.one_shot import OneShot
from cofactor.methods.staged import Staged
from cofactor.methods.summed import Summed
from cofactor.schedules import Switch
from cofactor.types import CofactorError, Factorizer

GROWTH = 145.0
"""By how much the rate of the regularizer grows over a plan: 1.005^1000 and 1.01^500 of the paper are both this."""

START = 0.3
"""Top of the uniform start of our own relaxations; see :class:`~cofactor.boolean.cube.Boolean`."""

ROUNDS = 60
"""The length of a schedule with all clients in every round, sweeps included; it is longer where there are fewer."""

SWEEPS, MORE = 3, 20
"""Sweeps where nobody says how many (``sweeps=None``): after one upload, and after a schedule (a third of it).

A sweep costs less than a round of a schedule, whose relaxed factor is often far from what sweeps make of it where
clients differ: three of them have not ended yet (18 cells of real data: 1.19 x pooled, with ten 1.15), on sparse data
ten have not, either (dna sorted, 24 seeds: 1.9 % more than thirteen, after which none changes). Of twice as many rounds
before the sweeps nothing is left after them.
"""

SHORTLIST = 16
"""How many factors of the server the clients of ``boolean-oneshot`` choose among."""

ALIGN: dict[str | None, tuple[Any, Any]] = {
    None: (None, None),
    # the codes of a client follow the alignment when the merged factor arrives, one round after the server's
    "first": (Switch(Lap(), None, at=1), Switch(Lap(), None, at=2)),
    "every": (Lap(), Lap()),
}
"""What ``align`` means for the server's mean and for the codes of a client."""


def _relaxation(rounds: int, *, steps: int, rate: float | None, prox: Prox) -> Relaxation:
    """Return the regularizer whose rate, if none is given, grows by GROWTH in so many rounds."""
    return Relaxation(rate=GROWTH ** (1 / (rounds * steps)) if rate is None else rate, prox=prox)


def _lengths(rounds: int | None, sweeps: int | None, share: float) -> tuple[int, int, int]:
    """Return the rounds of a schedule without its sweeps, how many of these there are, and the rounds of each."""
    whole = math.ceil(ROUNDS / share) if rounds is None else rounds
    return lengths(whole, min(MORE, whole // 3) if sweeps is None else sweeps, share)


def _uploaded(method: OneShot, rounds: int | None, stages: int, share: float) -> tuple[Method, int]:
    """Return a method of one upload with the rounds that this takes: all clients are to be heard in each stage."""
    turn = turn_of(share) if rounds is None else turn_of(share, rounds // stages)
    return gathered(method, turn, share), turn


def _alignment(align: str | None) -> tuple[Any, Any]:
    if align not in ALIGN:
        raise CofactorError(f"align: expected 'every', 'first' or None; found {align!r}.")
    return ALIGN[align]


def _averaged(prox: Prox, what: str) -> Callable[..., Method]:
    def make(
        rank: int,
        *,
        rounds: int | None = None,
        steps: int = 10,
        rate: float | None = None,
        align: str | None = "first",
        common_start: bool = True,
        sweeps: int | None = 0,
        share: float = 1.0,
    ) -> Method:
        server, client = _alignment(align)
        own, count, turn = _lengths(rounds, sweeps, share)
        params = _relaxation(own, steps=steps, rate=rate, prox=prox)
        method = Averaged(
            rank,
            Binary(params),
            ProximalMean(params, steps, server),
            sweeps=steps,
            align=client,
            gamma=0.0,
            common_start=common_start,
            space=Boolean(),
            count_sweeps=True,
        )
        return swept(method, rounds=own, sweeps=count, turn=turn, share=share)

    make.__doc__ = f"{what}: local proximal steps and a proximal mean at the server, components aligned or not."
    return make


def exact(
    rank: int,
    *,
    rounds: int | None = None,
    steps: int = 10,
    rate: float | None = None,
    sweeps: int | None = 0,
    share: float = 1.0,
) -> Method:
    """Relaxed factorization from sums of statistics: no drift, whatever the clients hold."""
    own, count, turn = _lengths(rounds, sweeps, share)
    params = _relaxation(own, steps=steps, rate=rate, prox=elb_prox)
    method = Summed(rank, Binary(params, steps), momentum=0.0, space=Boolean(START))
    return swept(method, rounds=own, sweeps=count, turn=turn, share=share)


def _ballot(name: str, what: str) -> Callable[..., Method]:
    def make(
        rank: int,
        *,
        aggregate: str = "vote",
        align: str | None = "first",
        sweeps: int | None = 0,
        rounds: int | None = None,
        share: float = 1.0,
    ) -> Method:
        if aggregate not in rules():
            raise CofactorError(f"aggregate: expected one of {', '.join(rules())}; found {aggregate!r}.")
        # there is one upload only, so the first alignment is every alignment
        ballot = Ballot(rules()[aggregate], _alignment(align)[0] and Lap())
        method = OneShot(rank, factorizers()[name], ballot, space=Boolean())
        count = SWEEPS if sweeps is None else sweeps
        upload, turn = _uploaded(method, rounds, 1 + count, share)
        return swept(upload, rounds=turn, sweeps=count, turn=turn, share=share)

    make.__doc__ = f"One upload of {what} factors, merged by vote, rounded mean or OR, aligned or not."
    return make


def oneshot(
    rank: int,
    *,
    local: str = "best",
    local_rank: int | None = None,
    sweeps: int | None = 0,
    rounds: int | None = None,
    share: float = 1.0,
) -> Method:
    """One upload of Boolean components with their usage counts; the server factorizes the union.

    Where ``sweeps`` follow, the clients first choose among the server's best factors (one round).
    """
    elbmf_ = Polished(Plain(elbmf.factorize, (("top", START),)))
    locals_: dict[str, Factorizer] = {"best": Adaptive(Asso(), elbmf_), "asso": Asso(), "elbmf": elbmf_}
    if local not in locals_:
        raise CofactorError(f"local: expected one of {', '.join(locals_)}; found {local!r}.")
    count = SWEEPS if sweeps is None else sweeps
    method = OneShot(rank, locals_[local], BooleanUnion(rank, SHORTLIST if count else 1), local_rank, space=Boolean())
    upload, turn = _uploaded(method, rounds, 2 + count if count else 1, share)
    if not count:
        return upload
    trial = gathered(Trial(rank, SHORTLIST), turn, share)
    return Staged(upload, turn, swept(trial, rounds=turn, sweeps=count, turn=turn, share=share))


FACTORS, VOTES = "weighted factors, with align=None", "votes, with align=None"

BOOLEAN: dict[str, tuple[Callable[..., Method], str, str]] = {
    "boolean-oneshot": (oneshot, "", ""),
    "boolean-exact": (exact, "", "statistics of codes and data"),
    "felb": (_averaged(elb_prox, "FELB"), "FELB", FACTORS),
    "falb": (_averaged(alb_prox, "FALB, with the adaptive rate"), "FELB", FACTORS),
    "asso": (_ballot("asso", "ASSO"), "FELB", VOTES),
    "grecond": (_ballot("grecond", "GreConD"), "FELB", VOTES),
    "mebf": (_ballot("mebf", "MEBF"), "FELB", VOTES),
    "zhang": (_ballot("zhang", "ZHANG"), "FELB", VOTES),
    "elbmf": (_ballot("elbmf", "ELBMF"), "FELB", VOTES),
}
"""Maker, paper and what may be summed of the methods for zeros and ones, the default first."""
