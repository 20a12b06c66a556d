"""The ledger of a run: costs of releases, composed into one true (epsilon, delta).

A cost says which mechanism released something and its ``multiplier``, noise scale over sensitivity, for neighbours
that differ by one unit. Gaussians compose exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from cofactor.privacy import gaussian
from cofactor.privacy.errors import BudgetError, ParameterError, UnitError
from cofactor.privacy.gaussian import check_delta, check_positive


class Unit(StrEnum):
    """What a total is for: one record, there or not; or what one client holds, replaced by nothing (zero-out).

    That a client takes part, its name and the number of clients are known to all.
    """

    RECORD = "record"
    CLIENT = "client"

    @property
    def relation(self) -> str:
        """How two data sets that must look alike differ.

        By one record that is there or is not; or, as the names and the number of clients are known to all, by what one
        client holds, which is replaced by nothing.
        """
        return "add/remove one" if self is Unit.RECORD else "zero out one"


def check_unit(unit: str) -> Unit:
    """Return the unit of this name."""
    if unit not in (Unit.RECORD, Unit.CLIENT):
        raise ParameterError(f"unit must be 'record' or 'client'. Found {unit!r}.")
    return Unit(unit)


class Mechanism(StrEnum):
    """How a release was randomized."""

    GAUSSIAN = "Gaussian"


@dataclass(frozen=True)
class Cost:
    """The price of one release: ``multiplier`` is sigma / Delta2, and 0 is no noise.

    Nothing is saved by drawing clients: the server sees who answered. ``private`` is False if the noise came from an
    insecure seed. ``honest`` is the number of clients whose noise makes up sigma: what they keep to themselves is whole
    only in their sum.
    """

    mechanism: Mechanism
    multiplier: float
    unit: Unit = Unit.RECORD
    private: bool = True
    honest: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.multiplier < math.inf:
            raise ParameterError(f"multiplier must be finite and not negative. Found {self.multiplier}.")


@dataclass(frozen=True)
class Spend:
    """What a ledger adds up to; printed with all that an epsilon means nothing without."""

    epsilon: float
    delta: float
    unit: Unit
    relation: str
    accountant: str
    private: bool = True
    honest: int = 1

    def __str__(self) -> str:
        value = f"epsilon = {self.epsilon:.6g}" if math.isfinite(self.epsilon) else "no finite epsilon"
        notes = [f"unit: {self.unit}", f"neighbours: {self.relation}", f"accountant: {self.accountant}"]
        notes += [assumption(self.honest)] if self.honest > 1 else []
        notes += [] if self.private else ["private: no (insecure seed)"]
        return f"{value} at delta = {self.delta:g} ({'; '.join(notes)})"


def assumption(honest: int) -> str:
    """Say what a total rests on where clients share the noise: everyone's own honesty is not worth a word."""
    return f"assuming at least {honest} honest clients in every sum"


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
    spent: float = 0.0
    """The epsilon of all that was charged."""

    def charge(self, *costs: Cost) -> Ledger:
        """Return the ledger with these costs paid; :class:`BudgetError` if they exceed the budget."""
        after = spend(self.costs + costs, self.budget.delta)
        paid = replace(self, costs=self.costs + costs, spent=after.epsilon)
        if after.epsilon > self.budget.epsilon * (1 + 1e-9):  # calibration is exact to 1e-9
            raise BudgetError(
                f"the budget is epsilon = {self.budget.epsilon:g}; with this release the run is at {after}."
            )
        return paid

    def spend(self) -> Spend:
        """Return the total so far."""
        return spend(self.costs, self.budget.delta)


def spend(costs: Iterable[Cost], delta: float) -> Spend:
    """Compose costs into one (epsilon, delta), exactly: all noise is Gaussian."""
    check_delta(delta)
    paid = list(costs)
    units = {c.unit for c in paid}
    if len(units) > 1:
        raise UnitError(f"costs of one unit were expected. Found {', '.join(sorted(units))}.")
    value = gaussian.epsilon(gaussian.compose(c.multiplier for c in paid), delta)
    unit = units.pop() if units else Unit.RECORD
    honest = max((c.honest for c in paid), default=1)
    return Spend(value, delta, unit, unit.relation, "exact Gaussian", all(c.private for c in paid), honest)
