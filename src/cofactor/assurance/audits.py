"""What can be checked of a run: ``cofactor audit`` from its folder alone.

The chains of the ledger; every entry against what the method declares and charges; and, for a private run, its own
mechanism and noise on worst-case records and clients that are made for it. Audits give lower bounds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from cofactor.assurance import ledger, transcript, worst_case
from cofactor.assurance.attack_rows import sensitivity
from cofactor.assurance.ledger import Line
from cofactor.assurance.spending import Spending
from cofactor.assurance.worst_case import Outcome
from cofactor.privacy.accountant import Unit
from cofactor.privacy.errors import AuditError, LedgerError

SHOWN = 3


class Audit(NamedTuple):
    """One line of the table: what was audited, how it went (None: it could not tell), and what was found."""

    audit: str
    of: str
    passed: bool | None
    text: str


def chains(found: ledger.Check) -> Audit:
    """Audit the hash chains of a ledger."""
    entries = sum(c.entries for c in found.chains)
    text = f"{entries} entries of {len(found.chains)} clients" if found.ok else _few(found.all_faults())
    return Audit("hash chain", ledger.FILE, found.ok, text)


def transcript_of(
    lines: Iterable[Line], method: Any, n_features: int, asked: Mapping[int, transcript.Schema] | None = None
) -> Audit:
    """Check every entry of a ledger against the schema and the costs of its round; None is a method not to be had.

    ``asked`` are schemas of rounds of sums before the first round of the method and after its last.
    """
    known = [line for line in lines if line.entry]
    if method is None:
        return Audit("transcript", ledger.FILE, None, "what clients that lack features send depends on which they lack")
    faults = list(entry_faults(known, method, n_features, asked or {}))
    text = f"{len(known)} entries as declared" if not faults else _few(faults)
    return Audit("transcript", ledger.FILE, not faults, text)


def entry_faults(
    lines: Iterable[Line], method: Any, n_features: int, asked: Mapping[int, transcript.Schema] = MappingProxyType({})
) -> Iterator[str]:
    """Yield what of a ledger the method does not declare: arrays, forms, bytes, costs, noise, and what is missing."""
    lines, known = list(lines), method.traits.allowance is not None
    rounds = {line.entry["round"] for line in lines}
    most = method.rounds if method.rounds is not None else max(rounds, default=0) + 1
    schemas = {t: method.schema(n_features, t) for t in rounds if 0 <= t < most} | dict(asked)
    sent = Counter((line.entry["client"], line.entry["round"], line.entry["array"]) for line in lines)
    for number, entry in lines:
        where, name, t = f"line {number}", entry["array"], entry["round"]
        if t not in schemas:
            yield f"{where}: round {t} was not planned"
            continue
        form = transcript.form_faults(name, tuple(entry["shape"]), entry["dtype"], schemas[t], private=known)
        yield from (f"{where}: {fault}" for fault in form)
        most_bytes = transcript.NUMBER * math.prod(entry["shape"]) * int(entry.get("clients", 1))
        if entry["bytes"] > most_bytes:
            yield f"{where}: {entry['bytes']} bytes, at most {most_bytes} were declared"
        if known and not form:
            yield from (f"{where}: {fault}" for fault in _price_faults(entry, method))
    for (client, t, name), times in sent.items():
        if times > 1 and client != ledger.TOGETHER:
            yield f"{client}, round {t}: {name!r} was sent {times} times"
    for client, t in dict.fromkeys((client, t) for client, t, _ in sent):
        yield from (
            f"{client}, round {t}: {name!r} was declared and not sent"
            for name in schemas.get(t, {})
            if (client, t, name) not in sent
        )


def _price_faults(entry: dict[str, Any], method: Any) -> Iterator[str]:
    """Yield where a private entry has not paid its cost, or has other noise than it paid for."""
    t, name = entry["round"], entry["array"]
    cost = method.allowance.costs(t)[name]
    try:
        paid = ledger.cost_of(entry)
    except LedgerError as error:
        yield str(error)
        return
    if paid is None:
        yield f"{name!r} was released without noise"
        return
    if paid != cost:
        yield f"{name!r} costs {cost} and has paid {paid}"
    bound, noise = entry.get("clip"), entry.get("noise")
    if not (isinstance(bound, int | float) and isinstance(noise, int | float) and bound > 0):
        yield f"{name!r} has the bound {bound} and the noise {noise}"
        return
    sigma = method.allowance.sigma(t, name, bound)
    if not noise >= sigma * (1 - 1e-9):
        yield f"{name!r} has noise {noise:.6g}, {sigma:.6g} was paid for"


def budget(found: Spending) -> Audit:
    """Audit what was spent against what was planned."""
    spent, planned = found.spent.epsilon, found.budget.epsilon if found.budget else None
    held = spent is not None and planned is not None and spent <= planned * (1 + 1e-9)
    # a run that says of itself that it is not private is not caught in anything
    passed = None if held and not found.spent.private else held
    return Audit("budget", f"{found.rounds} rounds", passed, found.spent.text or "")


def mechanism(method: Any, *, seed: int = 0) -> Iterator[Audit]:
    """Audit a private method's own clipping and noise in every kind of round."""
    unit, parts = method.allowance.privacy.unit, method.allowance.parts.least
    alone = f" in one client's message, with 1/{parts:g} of the noise of a sum" if parts > 1 else ""
    mu, epsilon = f"mu of one {unit}{alone}", f"epsilon of one {unit}{alone} at delta {worst_case.DELTA:g}"
    for t in worst_case.kinds(method):
        for moved in sensitivity(method, t, seed=seed):
            text = f"one {unit} moves it by {moved.share:.4f} of its bound at most ({moved.by})"
            yield Audit("sensitivity", f"{moved.name}, round {t}", moved.passed, text)
        yield from _tell("two worlds, noise", t, worst_case.two_world_release(method, t), mu)
        if unit is Unit.RECORD:
            yield from _tell("two worlds, step", t, worst_case.two_world_step(method, t), mu)
        yield from _tell("one run", t, worst_case.one_run(method, t, seeds=(seed,)), epsilon)


def _tell(audit: str, t: int, verdicts: Iterator[tuple[str, Outcome]], of: str) -> Iterator[Audit]:
    for name, verdict in verdicts:
        passed = None if isinstance(verdict, AuditError) else verdict.passed
        yield Audit(audit, f"{name}, round {t}", passed, _words(verdict, of))


def _words(verdict: Outcome, of: str) -> str:
    if isinstance(verdict, AuditError):
        return str(verdict)
    return f"{of}: at least {verdict.lower:.4g}, claimed {verdict.claim:.4g}, without noise {verdict.control:.4g}"


def _few(faults: list[str]) -> str:
    more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return "; ".join(faults[:SHOWN]) + more
