"""Epsilon in, noise out: what a run may cost in all, and how that is split over everything it releases."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.random import Generator

from cofactor.method import Method
from cofactor.privacy import clip, gaussian
from cofactor.privacy.accountant import Budget, Cost, Ledger, Mechanism, Spend, Unit, check_unit
from cofactor.privacy.errors import ParameterError, PrivacyError
from cofactor.privacy.gaussian import check_positive
from cofactor.privacy.grid import LIMIT, STEP
from cofactor.privacy.mechanisms import Gaussian
from cofactor.privacy.randomness import Source
from cofactor.privacy.secure_sum.neighbours import threshold
from cofactor.types import Array, Message, Shared

SEED = 32
"""Bytes of the seed of noise that may be taken back."""


@dataclass(frozen=True)
class Privacy:
    """What is asked for: all releases of the whole run together satisfy (epsilon, delta) for neighbours of one unit.

    With ``unit="record"`` neighbours differ by one row that is there or is not (add/remove). With ``unit="client"``
    what one client holds is replaced by nothing (zero-out), and that it takes part is known. ``clip`` bounds what one
    unit contributes: the norm of a row (None: every row is scaled to norm 1), or of a client's update.
    ``insecure_seed`` makes the noise reproducible, and the run not private. With secure sums, of the clients that
    answer so many may be ``curious``: they subtract their own noise from a sum, and what the others added is still
    enough.
    ``ledger`` is the file of a ledger over all runs on these data (:mod:`cofactor.privacy.account`): the run is added
    to it, and refused where it exceeds its total. ``rows`` is the number of rows of all clients, where it is public:
    delta is checked against it, and nothing is counted otherwise.

    >>> Privacy(epsilon=1, delta=1e-6).unit
    <Unit.RECORD: 'record'>
    """

    epsilon: float
    delta: float
    unit: Unit | Literal["record", "client"] = Unit.RECORD
    clip: float | None = None
    insecure_seed: int | None = None
    curious: int = 1
    ledger: str | Path | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        object.__setattr__(self, "unit", check_unit(self.unit))
        if self.clip is not None:
            check_positive("clip", self.clip)
        if not (isinstance(self.curious, Integral) and self.curious >= 0):
            raise ParameterError(f"curious must be a whole number of clients, 0 or more. Found {self.curious!r}.")
        seed = self.insecure_seed
        if seed is not None and not (isinstance(seed, Integral) and seed >= 0):
            raise ParameterError(f"insecure_seed must be a whole number, 0 or more, or None. Found {seed!r}.")
        if self.rows is not None and not (isinstance(self.rows, Integral) and self.rows >= 1):
            raise ParameterError(f"rows must be a whole number, 1 or more, or None. Found {self.rows!r}.")


class Parts(NamedTuple):
    """How many honest clients make up the noise of a sum: ``least`` if as few answer as may, ``full`` if all do.

    Every message carries one ``least``-th of the variance. Of that, one ``full``-th is enough where nobody dropped out,
    and the rest, drawn from a seed of its own, is then taken back.
    """

    least: int = 1
    full: int = 1

    @property
    def spare(self) -> float:
        """One over the share of the whole variance that a message carries in case somebody drops out; inf: none."""
        return math.inf if self.least == self.full else self.least * self.full / (self.full - self.least)


WHOLE = Parts()
"""Every message carries the whole noise: without secure sums."""


def honest_of(participants: int, curious: int) -> Parts:
    """Return ``t - a`` and ``n - a``: of t clients that must answer, and of all n, so many are not curious."""
    enough = threshold(participants)
    if enough <= curious:
        raise ParameterError(
            f"curious: of {participants} clients in a round {enough} must answer, so that at most {enough - 1} of them "
            f"may be curious. Found {curious}; without secure sums every message carries the whole noise."
        )
    return Parts(enough - curious, participants - curious)


class Release(NamedTuple):
    """How one array left a client: what it cost, the bound it was clipped to, the deviation of the client's noise."""

    cost: Cost
    clip: float
    sigma: float


@dataclass(frozen=True)
class Allowance:
    """The budget of a run, split: ``shares[t]`` gives each array of round t its part of ``mu^2 = sum (Delta/sigma)^2``.

    With secure summation messages carry ``parts`` of the noise: of the t clients that must answer a are curious and
    know their own noise, and that of the others adds up to the whole (:func:`honest_of`); where all n answer, the
    noise that makes up for absent ones is taken back. Noise is a rounded Gaussian, accounted exactly, as a whole and in
    parts.
    """

    privacy: Privacy
    shares: tuple[Mapping[str, float], ...]
    parts: Parts = WHOLE

    @cached_property
    def multiplier(self) -> float:
        """The sigma / Delta of a single release that spends the whole budget."""
        return gaussian.calibrate(self.privacy.epsilon, self.privacy.delta)

    @cached_property
    def _whole(self) -> float:
        """What all shares add up to."""
        return math.fsum(share for shares in self.shares for share in shares.values())

    def costs(self, t: int) -> dict[str, Cost]:
        """Return the price of every array of round t."""
        return {
            name: Cost(
                Mechanism.GAUSSIAN,
                self.multiplier * math.sqrt(self._whole / share),
                unit=Unit(self.privacy.unit),
                private=self.privacy.insecure_seed is None,
                honest=self.parts.least,
            )
            for name, share in self.shares[t].items()
        }

    def check_round(self, participants: int) -> None:
        """Refuse a round in which the honest among those that must answer would not carry the whole noise."""
        honest = honest_of(participants, self.privacy.curious)
        if self.parts.least > honest.least or self.parts.full > honest.full:
            raise PrivacyError(
                f"the noise of this plan is whole with {self.parts.least} honest clients, and in a round of "
                f"{participants} only {honest.least} are sure to answer. Make the plan for the number of clients that "
                "take part in a round."
            )

    def ledger(self, rounds: int, clients: int | None = None) -> Ledger:
        """Return the ledger with the first ``rounds`` rounds charged; :class:`BudgetError` if they cost too much.

        Of so many clients, n public units make delta >= 1/n an error: clients, or rows where their number is public.
        """
        n = clients if self.privacy.unit is Unit.CLIENT else None if clients is None else self.privacy.rows
        budget = Budget(self.privacy.epsilon, self.privacy.delta, n)
        return Ledger(budget).charge(*(cost for t in range(rounds) for cost in self.costs(t).values()))

    def bill(self, rounds: int, clients: int) -> tuple[list[dict[str, Cost]], list[Ledger]]:
        """Return the price of every round, and what is paid before each of them and after the last."""
        costs, paid = [self.costs(t) for t in range(rounds)], [self.ledger(0, clients)]
        for prices in costs:
            paid.append(paid[-1].charge(*prices.values()))
        return costs, paid

    def total(self) -> Spend:
        """Return what the whole run costs."""
        return self.ledger(len(self.shares)).spend()

    def sigma(self, t: int, name: str, sensitivity: float, messages: float = 1, spared: float = 0) -> float:
        """Return the standard deviation of the noise in a sum of messages, of which so many had theirs taken back."""
        held = max(messages, 1) - spared
        return (
            self.costs(t)[name].multiplier * sensitivity * math.sqrt(held / self.parts.least + spared / self.parts.full)
        )

    def release(self, t: int, values: Mapping[str, Array], bounds: Mapping[str, float], rng: Generator) -> Message:
        """Return the message of round t: values of bounded L2 sensitivity, on the grid, with noise, and their cost.

        The weight is 1, whatever the client holds: its rows are nobody's business. For the unit client the bound holds
        for the message itself, and one that was not clipped is refused here, before it leaves.
        """
        if self.privacy.unit is Unit.CLIENT:
            for name, a in values.items():
                clip.require(a, bounds[name])
        costs, source = self.costs(t), self._source(rng)
        paid = {name: Release(costs[name], bounds[name], self.sigma(t, name, bounds[name])) for name in values}
        most = LIMIT * STEP / 2 / self.parts.full  # cut off, which moves nothing further apart: an error would tell
        inside = {name: np.clip(a, -most, most) for name, a in values.items()}
        noisy = {name: self._mechanism(paid[name], self.parts.full)(a, source)[0] for name, a in inside.items()}
        if self.parts.spare == math.inf:
            return Message(noisy, 1.0, paid)
        seed = source.raw(SEED)
        spare = self.spare({name: np.shape(a) for name, a in values.items()}, paid, seed)
        return Message({name: a + spare[name] for name, a in noisy.items()}, 1.0, paid, spare=seed)

    def spare(
        self, shapes: Mapping[str, tuple[int, ...]], paid: Mapping[str, Release], seed: bytes
    ) -> dict[str, Array]:
        """Return the noise of a message that is only needed where somebody drops out, from its seed: by name."""
        streams = {
            name: Source(seed=hashlib.sha256(b"cofactor noise 2" + seed + name.encode()).digest()) for name in shapes
        }
        return {
            name: self._mechanism(paid[name], self.parts.spare)(np.zeros(shape), streams[name])[0]
            for name, shape in shapes.items()
        }

    def spared(self, sums: Message, seeds: Collection[bytes]) -> Message:
        """Server: take out of a sum the noise that was not needed, as its seeds give it."""
        shapes = {name: np.shape(a) for name, a in sums.arrays.items()}
        left = dict(sums.arrays)
        for seed in seeds:  # one after the other: those of hundreds of clients would not fit into memory
            spare = self.spare(shapes, sums.cost, seed)
            left = {name: a - spare[name] for name, a in left.items()}
        return sums._replace(arrays=left, spared=len(seeds))

    def _mechanism(self, release: Release, parts: float) -> Gaussian:
        return Gaussian(release.cost.multiplier, release.clip, release.cost.unit, parts)

    def _source(self, rng: Generator) -> Source:
        """The operating system's randomness; an insecure seed is made different for every client and round."""
        seed = self.privacy.insecure_seed
        return Source() if seed is None else Source(insecure_seed=seed ^ int(rng.integers(1 << 62)))


class Private(Method, Protocol):
    """A method whose messages are noisy releases, and what audits and forecasts ask it."""

    @property
    def allowance(self) -> Allowance:
        """The budget and how it is split."""
        ...

    def bench(self, features: int) -> tuple[Any, Array | None]:
        """Return a form in which every one of so many features is a record with a direction of its own, and its start.

        The allowance stays as it is; methods of the unit client, whose updates have no records, return themselves.
        """
        ...

    def late(self, shared: Shared, t: int) -> tuple[Shared, ...]:
        """Return states that round t may find, with bounds that clip; one for each thing that it may release."""
        ...

    def drowns(self, *, units: float, features: int, clients: float) -> bool:
        """Whether so few units leave so little to be seen that it releases less, with less noise."""
        ...

    def remark(self, shared: Shared) -> str:
        """Return what must be said of the factor in words, from released values alone; mostly nothing."""
        ...

    def noise_over_signal(self, *, units: int, features: int, clients: int) -> float:
        """Return noise over what an average component has in the array that carries the factor."""
        ...
