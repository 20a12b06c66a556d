"""What a budget buys before it is spent: the noise of every release, and that noise against the signal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cofactor.method import Method
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.methods.foreseen import DROWNED, expected
from cofactor.plan import Plan
from cofactor.privacy.accountant import Budget, Unit
from cofactor.privacy.allowance import Allowance, Privacy, Private
from cofactor.privacy.secure_sum.neighbours import bound, check_enough
from cofactor.types import CofactorError

RANK, FEATURES = 10, 1000
"""Stand in where they are not given and the noise multipliers do not depend on them."""


@dataclass(frozen=True)
class Question:
    """What is asked of a plan; None is not known."""

    epsilon: float
    delta: float
    method: str | None = None
    rounds: int | None = None
    rank: int | None = None
    features: int | None = None
    rows: int | None = None
    clients: int | None = None
    unit: str = "record"
    clip: float | None = None
    secure: bool = False
    curious: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse sizes that are none, and a delta that is too large for the units there are."""
        for name in ("rounds", "rank", "features", "rows", "clients"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise CofactorError(f"{name}: expected at least 1. Found {value}.")
        Budget(self.epsilon, self.delta, self.units)
        if self.secure:
            check_enough(self.clients or 0)

    @property
    def units(self) -> int | None:
        """How many units there are: rows or clients."""
        return self.clients if self.unit == "client" else self.rows

    @property
    def name(self) -> str:
        """The method: the default of a private fit, or, for a number of rounds, the one that shares statistics."""
        return self.method or ("dp-nmf" if self.rounds else catalog.names("private")[0])


class Noise(NamedTuple):
    """The noise of one array: ``sigma`` of a client's message and of the sum over all, in units of the bound."""

    array: str
    rounds: str
    multiplier: float
    sigma: float
    sigma_of_sum: float | None


class Answer(NamedTuple):
    """A plan, its total, its noise, and what can be expected of it."""

    method: Any
    rounds: int
    noise: list[Noise]
    ratio: float | None
    expected: str


def method_of(question: Question) -> Method:
    """Build the method that would run; without a name and with rounds, A and B have equal shares of every round."""
    q, options = question, dict(question.options)
    unit: Any = q.unit
    entry = catalog.find(q.name)
    if q.rounds and entry.private and "rounds" not in entry.options:
        raise CofactorError(f"method {q.name!r} has its own number of rounds: leave out --rounds. Found {q.rounds}.")
    if q.method is None and q.rounds:
        options = {"gram_share": 0.5, **options}
    asked = Privacy(q.epsilon, q.delta, unit, q.clip, curious=q.curious, rows=q.rows)
    plan = Plan(q.rounds, privacy=asked, secure=q.secure)
    facts = Facts(q.clients or 1, q.features or FEATURES, q.rows or FEATURES)
    return build(q.name, q.rank or RANK, plan, facts, options)[0]


def answer(question: Question) -> Answer:
    """Return the noise of every release, and noise against signal where the sizes are known."""
    method: Any = method_of(question)
    ratio = _ratio(method, question)
    noise = list(_noise(method.allowance, question.clients))
    return Answer(method, method.rounds, noise, ratio, _expected(ratio, drowned=_drowned(method, question)))


def _noise(plan: Allowance, clients: int | None) -> Iterator[Noise]:
    rounds: dict[str, list[int]] = {}
    for t, shares in enumerate(plan.shares):
        for name in shares:
            rounds.setdefault(name, []).append(t)
    for name, when in rounds.items():
        first, last = when[0], when[-1]
        whole = plan.sigma(first, name, 1.0, clients, clients) if clients else None
        span = str(first) if first == last else f"{first}-{last}"
        yield Noise(name, span, plan.costs(first)[name].multiplier, plan.sigma(first, name, 1.0), whole)


def multipliers(found: Answer) -> dict[str, float]:
    """Return sigma / Delta of every release by name."""
    return {noise.array: noise.multiplier for noise in found.noise}


def _ratio(method: Private, q: Question) -> float | None:
    """Return noise over signal in the array that carries the factor; None where sizes are missing."""
    if q.units is None or q.features is None or q.rank is None:
        return None
    return method.noise_over_signal(units=q.units, features=q.features, clients=q.clients or 1)


def _drowned(method: Private, q: Question) -> bool:
    known = q.units is not None and q.features is not None
    return known and method.drowns(units=q.units or 0, features=q.features or 0, clients=q.clients or 1)


def _expected(ratio: float | None, *, drowned: bool) -> str:
    if drowned:
        return DROWNED
    if ratio is None:
        return "Give --features, --rank and --rows (or --clients) to hold the noise against the signal."
    return expected(ratio)


NEIGHBOURS = {
    Unit.RECORD: "add/remove neighbours",
    Unit.CLIENT: "zero-out neighbours: what one client holds is replaced by nothing, and that it takes part is known",
}


def meaning(*, secure: bool, unit: str = Unit.RECORD, clients: int | None = None) -> list[str]:
    """Return what the numbers mean, in the words that may be used."""
    lines = [
        f"All releases of a run together satisfy the printed (eps, delta), {NEIGHBOURS[Unit(unit)]}.",
        "Raw rows and codes never leave a client; each method's messages are listed and tested.",
        "Audits give lower bounds: they find bugs, they do not prove privacy.",
    ]
    if secure:
        few = f"at most {bound(clients).colluders}" if clients else "fewer than t"
        lines.append(
            f"With secure summation a curious server and {few} colluding clients see, in each round, only the "
            "sum; the sums themselves are disclosed. The cryptography is unaudited and assumes honest-but-curious "
            "parties. The total assumes the printed number of honest clients."
        )
        lines += [f"Masks: {bound(clients)}."] if clients else []
    return lines
