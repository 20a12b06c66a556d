"""From a name, a rank, a plan and a few facts about the data to the method that will run: the only place that does."""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from cofactor.local.overlap import first_overlap, known_by
from cofactor.method import Method
from cofactor.methods import catalog
from cofactor.methods.auto import Choice, choose, density_of
from cofactor.methods.catalog import Entry
from cofactor.methods.foreseen import foreseen
from cofactor.methods.planned import check, form, limit, usual
from cofactor.methods.refusals import AGAIN, DEALT, GROUPED, MATCHED, SKETCH, not_additive
from cofactor.plan import ROUNDS, Plan, Stream
from cofactor.privacy.allowance import WHOLE, Parts, Privacy, honest_of
from cofactor.privacy.errors import ParameterError, PrivacyError
from cofactor.types import CofactorError, Data

AUTO = "auto"
PRIVATE_FORM = (
    "dp-moments, in the place of exact: with privacy its factor is made of two noisy moments of all rows, which takes "
    "less noise than its statistics of many rounds."
)
"""Said of the default method in a private run."""


@dataclass(frozen=True)
class Facts:
    """What a method may know of the data before it runs. Of a private run, rows are None unless they are public.

    ``groups`` number the features where clients lack some (:func:`cofactor.local.columns.groups`). ``some`` are rows
    that "auto" may look at.
    """

    clients: int = 1
    features: int | None = None
    rows: int | None = None
    groups: tuple[int, ...] | None = None
    some: Data = None


def settle(name: str, rank: int, plan: Plan, facts: Facts) -> Choice:
    """Return the method that a name stands for, and why, where another one was asked for or runs in its place.

    With privacy or secure sums nothing about the data may be looked at, so that "auto" is the default method.
    """
    if name != AUTO:
        private = name == "exact" and plan.privacy is not None
        return Choice(catalog.find(name, AUTO).name, PRIVATE_FORM if private else "")
    if plan.privacy is not None:
        return Choice("exact", f"{PRIVATE_FORM} Of the data nothing else may be looked at.")
    if plan.secure:
        return Choice("exact", "exact, because only it works from sums, and nothing else may be looked at.")
    if facts.rows is None or facts.features is None:
        raise CofactorError(f"method {AUTO!r} depends on the matrix: expected rows and features, found none.")
    density = 1.0 if facts.some is None or facts.clients > 1 else density_of(facts.some)
    return choose((facts.rows, facts.features), rank, density=density, clients=facts.clients)


def refuse(
    method: str | Method,
    plan: Plan,
    options: Mapping[str, Any],
    kinds: Container[str] = catalog.KINDS,
    *,
    features: str = "same",
    groups: Any = None,
) -> str:
    """Refuse what is known to be wrong before any data is read; return the kind of the method.

    Of a name whose kind is none of these ``kinds`` nothing else matters, and only its kind is returned. In a private
    run neither how ``features`` are matched nor ``groups`` of rows may show which of them a client has.
    """
    kind = about(method).kind
    if not isinstance(method, str):
        check(method, plan)
    elif method != AUTO and kind in kinds:
        entry = catalog.find(method)
        _refuse(entry, plan, options)
        if plan.privacy is not None:  # a method without a private form says so now
            build(method, 1, replace(plan, secure=False), Facts(), options)
    if plan.privacy is not None and features in ("intersection", "union"):
        raise PrivacyError(MATCHED)
    if plan.privacy is not None and groups is not None:
        raise PrivacyError(GROUPED)
    return kind


def refuse_dealt(plan: Plan) -> None:
    """Refuse clients of a private run that are cut out of one table."""
    if plan.privacy is not None:
        raise PrivacyError(DEALT)


def refuse_again(Xs: Any) -> None:
    """Refuse a matrix, or cells of it, that a private run is given for two clients, as a file twice: by what it is."""
    matrices = Xs if isinstance(Xs, list | tuple) else ()
    refuse_same(list(map(known_by, matrices)))
    if (both := first_overlap(matrices)) is not None:
        raise _again("the rows", *both)


def refuse_same(known_by: Sequence[Hashable]) -> None:
    """Refuse two clients of a private run whose data are known by the same name."""
    first: dict[Hashable, int] = {}
    for j, name in enumerate(known_by):
        if first.setdefault(name, j) != j:
            raise _again("that", first[name], j)


def _again(what: str, first: int, client: int) -> PrivacyError:
    return PrivacyError(AGAIN.format(what=f"client {client}: expected each matrix", again=f"{what} of {first}"))


class About(NamedTuple):
    """What a method says of itself before it is built: the kind of its data, and of an object its rank and budget.

    ``started`` are the options by which a name takes a start that is given.
    """

    kind: str
    rank: int | None = None
    privacy: Privacy | None = None
    started: Mapping[str, Any] = {}


def about(method: str | Method) -> About:
    """Return what is known of a method; a name has no rank and no budget yet."""
    if isinstance(method, str):
        if method == AUTO:
            return About("real")
        entry = catalog.find(method, AUTO)
        return About(entry.kind, started=entry.started_options)
    allowance = method.traits.allowance
    return About(method.traits.kind, method.rank, None if allowance is None else allowance.privacy)


def _refuse(entry: Entry, plan: Plan, options: Mapping[str, Any]) -> None:
    catalog.check_options(entry, options)
    if entry.kind == "blocks" and plan.privacy is not None:
        raise PrivacyError(SKETCH)
    if entry.private and plan.privacy is None:
        raise ParameterError(f"method {entry.name!r} adds noise: expected epsilon and delta. Found none.")
    if entry.private and plan.rounds is not None and "rounds" not in entry.options:
        own = catalog.make(entry.name, 1, privacy=plan.privacy).rounds
        if plan.rounds < (own or 1):
            raise CofactorError(f"rounds: method {entry.name!r} needs {own} rounds. Found {plan.rounds}.")


def build(
    method: str | Method, rank: int, plan: Plan, facts: Facts, options: Mapping[str, Any] | None = None
) -> tuple[Method, Plan]:
    """Return the method and the plan as they will run.

    A name is made with its options and with what the plan and the facts say; a method object is taken as it is. With
    privacy either becomes its private form, or is refused. A method with a plan of its own runs all of it.
    """
    if isinstance(method, str):
        entry = catalog.find(settle(method, rank, plan, facts).method)
        made = _named(entry, rank, plan, facts, options or {})
    else:
        made = method
        check(made, plan)
    if plan.privacy is not None and made.traits.allowance is None:
        made = made.private(plan.privacy, rounds=plan.rounds or ROUNDS, parts=_parts(plan, facts))
    if plan.secure and not made.traits.additive:
        raise PrivacyError(not_additive(made.traits.kind))
    settled = _settled(plan, made, facts.clients)
    if made.traits.allowance is not None:
        made.traits.allowance.ledger(limit(made, settled), facts.clients)  # refused if it costs more than its budget
    return made, settled


class Ready(NamedTuple):
    """A method and a plan as they will run, and what is known of the run before it begins.

    ``rounds`` is the most that it takes, None for a stream. ``choice`` says what a name stands for, where another
    method runs than was asked for; ``foreseen`` what must be known of the noise of a private run.
    """

    method: Method
    plan: Plan
    rounds: int | None
    choice: Choice | None = None
    foreseen: str = ""


def ready(method: str | Method, rank: int, plan: Plan, facts: Facts, options: Mapping[str, Any] | None = None) -> Ready:
    """Settle what a name stands for, build it (:func:`build`), and look ahead."""
    choice = settle(method, rank, plan, facts) if isinstance(method, str) else None
    made, settled = build(method if choice is None else choice.method, rank, plan, facts, options)
    told = foreseen(made, clients=facts.clients, features=facts.features, rows=facts.rows)
    other = choice if choice is not None and choice.why else None
    return Ready(made, settled, None if settled.stream else limit(made, settled), other, told)


class Form(NamedTuple):
    """A method in the form that a plan needs, the most rounds it takes, and its components."""

    method: Method
    rounds: int
    rank: int


def adapted(method: Method, plan: Plan, Xs: Any = ()) -> Form:
    """Return a method in the form that a plan needs; refuse what is none, or contradicts the plan.

    Of the data it is known which matrices they are.
    """
    if isinstance(method, str):
        raise CofactorError(
            f"method: expected a method, as cofactor.methods.catalog.make({method!r}, rank). Found the text {method!r}."
        )
    if plan.privacy is not None and method.traits.allowance is None:
        raise CofactorError("privacy: expected the private form of the method; see cofactor.methods.build.")
    check(method, plan)
    if method.traits.allowance is not None:
        refuse_again(Xs)
    return Form(form(method, plan), limit(method, plan), method.rank)


def _parts(plan: Plan, facts: Facts) -> Parts:
    """Return how many clients make up the noise of a sum: one, where every message carries the whole."""
    if plan.privacy is None or not plan.secure:
        return WHOLE
    return honest_of(plan.participants(facts.clients), plan.privacy.curious)


def _named(entry: Entry, rank: int, plan: Plan, facts: Facts, options: Mapping[str, Any]) -> Method:
    """Make the method of an entry; what is given goes before what follows from the plan."""
    _refuse(entry, plan, options)
    known: dict[str, Any] = {
        **(entry.alone(rank, facts.rows, facts.features) if facts.clients == 1 else {}),
        **(entry.secure_options if plan.secure else {}),
        **(entry.private_options if plan.privacy is not None else {}),
        "rounds": plan.rounds,
        "iterations": plan.rounds,
        "share": plan.share if plan.privacy is None else None,  # more rounds would be more releases
        "groups": facts.groups,
        "shape": None if facts.rows is None else (facts.rows, facts.features),
    }
    if entry.private:
        known |= {"privacy": plan.privacy, "parts": _parts(plan, facts)}
    if facts.groups is not None and "groups" not in entry.options:
        raise CofactorError(
            f"method {entry.name!r} needs the same features at every client; match them by intersection "
            "(features='intersection', --features intersection), or take the method exact, which fits what each has."
        )
    own = {name: value for name, value in known.items() if name in entry.options and value is not None}
    return catalog.make(entry.name, rank, **{**own, **options})


def _settled(plan: Plan, method: Method, clients: int) -> Plan:
    """Return the plan with the method's own rounds, which no stop rule ends where it has such, or as a stream."""
    if method.rounds is not None:
        return replace(plan, rounds=method.rounds, stop=plan.stop if method.traits.iterates else 0.0)
    plain = plan.privacy is None and not plan.secure and plan.participation == 1
    if method.traits.streams and plain:
        return replace(plan, stream=Stream((plan.rounds or usual(plan, paid=False)) * clients))
    return plan
