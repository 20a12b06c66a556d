"""The ledger of a run: costs of releases, composed into one true (epsilon, delta).

A cost says which mechanism released something and its ``multiplier``, noise scale over sensitivity, for neighbours
that differ by one added or removed unit. Gaussians compose exactly, discrete Gaussians by zCDP, all else numerically.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from cofactor.privacy import gaussian, pld, zcdp
from cofactor.privacy.errors import BudgetError, ParameterError, UnitError
from cofactor.privacy.gaussian import check_delta, check_positive
from cofactor.privacy.pld import Mechanism


class Unit(StrEnum):
    """Whose presence is hidden: one record, everything of one client, or one cell of a Boolean matrix."""

    RECORD = "record"
    CLIENT = "client"
    CELL = "cell"


@dataclass(frozen=True)
class Cost:
    """The price of a release, paid ``count`` times.

    ``multiplier`` is sigma / Delta2 (Gaussians), scale / Delta1 (Laplace) or 1 / eps0 (randomized response); 0 is no
    noise. ``sampling`` is the Poisson rate at which a unit takes part, unseen by whoever reads the release: against
    a server that sees who answered it is 1. ``private`` is False if the noise came from an insecure seed.
    """

    mechanism: Mechanism
    multiplier: float
    count: int = 1
    unit: Unit = Unit.RECORD
    sampling: float = 1.0
    private: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.multiplier < math.inf:
            raise ParameterError(f"multiplier must be finite and not negative. Found {self.multiplier}.")
        if self.count < 0:
            raise ParameterError(f"count must not be negative. Found {self.count}.")
        if not 0 < self.sampling <= 1:
            raise ParameterError(f"sampling must be in (0, 1]. Found {self.sampling}.")
        if self.sampling < 1 and self.mechanism not in (Mechanism.GAUSSIAN, Mechanism.LAPLACE):
            raise ParameterError(f"sampling is accounted for Gaussian and Laplace only. Found {self.mechanism}.")

    def times(self, count: int) -> Cost:
        """Return the cost of paying this one ``count`` times."""
        return replace(self, count=self.count * count)


@dataclass(frozen=True)
class Spend:
    """What a ledger adds up to; printed with all that an epsilon means nothing without."""

    epsilon: float
    delta: float
    unit: Unit
    relation: str
    accountant: str
    private: bool = True

    def __str__(self) -> str:
        value = f"epsilon = {self.epsilon:.6g}" if math.isfinite(self.epsilon) else "no finite epsilon"
        note = "" if self.private else "; private: no (insecure seed)"
        return (
            f"{value} at delta = {self.delta:g} (unit: {self.unit}; neighbours: {self.relation}; "
            f"accountant: {self.accountant}{note})"
        )


@dataclass(frozen=True)
class Budget:
    """The limit of a run: a total (epsilon, delta); with the number of units n, delta must be below 1/n."""

    epsilon: float
    delta: float
    n: int | None = None

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        check_delta(self.delta)
        if self.n is not None and self.delta * self.n >= 1:
            raise ParameterError(f"delta must be below 1/n = {1 / self.n:g}. Found {self.delta:g}.")


@dataclass(frozen=True)
class Ledger:
    """All costs of a run against its budget; charging returns a new ledger or refuses before anything is released."""

    budget: Budget
    costs: tuple[Cost, ...] = ()

    def charge(self, *costs: Cost) -> Ledger:
        """Return the ledger with these costs paid; :class:`BudgetError` if they exceed the budget."""
        paid = replace(self, costs=self.costs + costs)
        after = paid.spend()
        if after.epsilon > self.budget.epsilon * (1 + 1e-9):  # calibration is exact to 1e-9
            raise BudgetError(
                f"the budget is epsilon = {self.budget.epsilon:g}; with this release the run is at {after}."
            )
        return paid

    def spend(self) -> Spend:
        """Return the total so far."""
        return spend(self.costs, self.budget.delta)


def spend(costs: Iterable[Cost], delta: float) -> Spend:
    """Compose costs into one (epsilon, delta) with the sharpest accountant that is proven for their mechanisms."""
    check_delta(delta)
    paid = [c for c in costs if c.count]
    units = {c.unit for c in paid}
    if len(units) > 1:
        raise UnitError(f"costs of one unit were expected. Found {', '.join(sorted(units))}.")
    name, epsilon = _choose(paid)
    value = math.inf if any(c.multiplier == 0 for c in paid) else epsilon(paid, delta)
    unit = units.pop() if units else Unit.RECORD
    return Spend(value, delta, unit, _relation(paid), name, all(c.private for c in paid))


def calibrate(costs: Callable[[float], Iterable[Cost]], budget: Budget) -> float:
    """Return the smallest multiplier z (to 1e-6) for which ``costs(z)`` stays within the budget, by bisection.

    For mixtures; pure Gaussians have the closed form :func:`cofactor.privacy.gaussian.allocate`.
    """

    def fits(z: float) -> bool:
        return spend(costs(z), budget.delta).epsilon <= budget.epsilon

    low, high = 0.0, 1.0
    while not fits(high):
        low, high = high, 2 * high
        if high > 1e6:
            raise BudgetError(f"no multiplier up to 1e6 keeps these releases within epsilon = {budget.epsilon:g}.")
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _choose(costs: list[Cost]) -> tuple[str, Callable[[list[Cost], float], float]]:
    kinds = {c.mechanism for c in costs}
    sampled = any(c.sampling < 1 for c in costs)
    if kinds <= {Mechanism.GAUSSIAN} and not sampled:
        return "exact Gaussian", _exact
    if kinds <= {Mechanism.GAUSSIAN, Mechanism.DISCRETE_GAUSSIAN} and not sampled:
        return "zCDP", _zcdp
    if Mechanism.DISCRETE_GAUSSIAN in kinds:
        return "RDP", pld.rdp_epsilon
    return "PLD", pld.epsilon


def _exact(costs: list[Cost], delta: float) -> float:
    return gaussian.epsilon(math.sqrt(math.fsum(c.count * c.multiplier**-2 for c in costs)), delta)


def _zcdp(costs: list[Cost], delta: float) -> float:
    return zcdp.epsilon(math.fsum(c.count * zcdp.rho(c.multiplier) for c in costs), delta)


def _relation(costs: list[Cost]) -> str:
    """Randomized response compares two values of a bit; beside other mechanisms an absent unit counts as bit 0."""
    flips = bool(costs) and all(c.mechanism is Mechanism.RANDOMIZED_RESPONSE for c in costs)
    return "change one" if flips else "add/remove one"
