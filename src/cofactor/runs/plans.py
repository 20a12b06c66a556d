"""What a budget buys before it is spent: the noise of every release, and that noise against the signal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cofactor.local.symmetric import noise_edge
from cofactor.method import Method
from cofactor.methods import catalog
from cofactor.methods.client_level import ClientLevel
from cofactor.methods.dp_nmf import NoisyStatistics
from cofactor.methods.moments import Moments
from cofactor.privacy.accountant import Budget, Unit
from cofactor.privacy.errors import ParameterError
from cofactor.privacy.plan import Plan, Privacy
from cofactor.privacy.secure_sum.messages import Terms
from cofactor.runs.config import own_rounds
from cofactor.types import CofactorError

RANK, FEATURES = 10, 1000
"""Stand in where they are not given and the noise multipliers do not depend on them."""
CLEAR, LOST = 0.1, 2.0
"""Noise against signal: below the first little is lost, from the second on little is left.

What dp-moments kept of all that a factor gains over the mean row, by this ratio: digits 98 % (.08), text 93 % (.09) and
30 % (.6), faces 95 % (.18) and 65 % (1.1), single cells 0 % (4.4). Strong patterns stand out earlier than equal ones.
"""


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
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse sizes that are none, and a delta that is too large for the units there are."""
        for name in ("rounds", "rank", "features", "rows", "clients"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise CofactorError(f"{name}: expected at least 1. Found {value}.")
        Budget(self.epsilon, self.delta, self.units)
        if self.secure:
            Terms(b"", tuple(range(self.clients or 0)), 1)  # at least three clients

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
    privacy = Privacy(q.epsilon, q.delta, unit, q.clip)
    known = catalog.options_of(q.name)
    rounds = q.rounds or own_rounds(q.name)
    if "rounds" in known:
        options = {"rounds": rounds, **options}
    elif q.rounds and q.name in catalog.names("private"):
        raise CofactorError(f"method {q.name!r} has its own number of rounds: leave out --rounds. Found {q.rounds}.")
    if q.method is None and q.rounds:
        options = {"gram_share": 0.5, **options}
    if "shape" in known:
        options = {"shape": (q.rows or FEATURES, q.features or FEATURES), **options}
    return catalog.make_for(
        q.name,
        q.rank or RANK,
        options,
        participants=q.clients or 1,
        rounds=rounds,
        privacy=privacy,
        secure=q.secure,
    )


def answer(question: Question) -> Answer:
    """Return the noise of every release, and noise against signal where the sizes are known."""
    method: Any = method_of(question)
    ratio = _ratio(method, question)
    return Answer(method, method.rounds, list(_noise(method.plan, question.clients)), ratio, _expected(ratio))


def _noise(plan: Plan, clients: int | None) -> Iterator[Noise]:
    rounds: dict[str, list[int]] = {}
    for t, shares in enumerate(plan.shares):
        for name in shares:
            rounds.setdefault(name, []).append(t)
    for name, when in rounds.items():
        first, last = when[0], when[-1]
        whole = plan.sigma(first, name, 1.0, clients) if clients else None
        span = str(first) if first == last else f"{first}-{last}"
        yield Noise(name, span, plan.costs(first)[name].multiplier, plan.sigma(first, name, 1.0), whole)


def multipliers(found: Answer) -> dict[str, float]:
    """Return sigma / Delta of every release by name."""
    return {noise.array: noise.multiplier for noise in found.noise}


def _ratio(method: Any, q: Question) -> float | None:
    """Return noise over signal in the array that carries the factor; None where sizes are missing.

    Signal is what k equal components would have: eigenvalues ``n C^2 / k`` of the second moment, ``n / k`` of the gram
    and of the cross statistics, and for updates their bound S.
    """
    if q.units is None or q.features is None or q.rank is None:
        return None
    plan, n, m, k, clients = method.plan, q.units, q.features, q.rank, q.clients or 1
    last = method.rounds - 1
    if isinstance(method, Moments):
        return noise_edge(plan.sigma(last, "moment", 1.0, clients), min(m, method.widest)) * k / n
    if isinstance(method, NoisyStatistics):
        sigma = plan.sigma(last, "cross", 1.0, clients)
        return sigma * (math.sqrt(k) + math.sqrt(m)) * k / n
    assert isinstance(method, ClientLevel)
    return plan.sigma(last, "factor", 1.0, clients) * math.sqrt(k * m) / clients


def _expected(ratio: float | None) -> str:
    if ratio is None:
        return "Give --features, --rank and --rows (or --clients) to hold the noise against the signal."
    found = f"noise is {ratio:.2g} times the signal of an average component"
    if ratio < CLEAR:
        return f"The result can be expected to be useful, close to one without privacy: {found}."
    if ratio < LOST:
        return f"The result can be expected to be coarse: {found}, so that only stronger components stand out."
    return (
        f"The result can be expected to be useless, little more than the mean row: {found}. More units, fewer "
        "features, a lower rank or a larger epsilon would help."
    )


def meaning(*, secure: bool) -> list[str]:
    """Return what the numbers mean, in the words that may be used."""
    lines = [
        "All releases of a run together satisfy the printed (eps, delta), add/remove neighbours.",
        "Raw rows and codes never leave a client; each method's messages are listed and tested.",
        "Audits give lower bounds: they find bugs, they do not prove privacy.",
    ]
    if secure:
        lines.append(
            "With secure summation a curious server and fewer than t colluding clients see only the sum; the sum "
            "itself is disclosed. The cryptography is unaudited and assumes honest-but-curious parties."
        )
    return lines


def check_unit(unit: str) -> str:
    """Return a unit that a plan can have."""
    if unit not in (Unit.RECORD, Unit.CLIENT):
        raise ParameterError(f"unit must be 'record' or 'client'. Found {unit!r}.")
    return unit
