"""A private run pays: its whole plan is checked before it starts, and every round is charged before it begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cofactor.method import Method
from cofactor.privacy.accountant import Cost, Ledger, Unit
from cofactor.privacy.errors import PrivacyError
from cofactor.privacy.plan import Private
from cofactor.types import ClientError, Data, Message


def open_ledger(method: Method, rounds: int, done: int, n_clients: int, Xs: Sequence[Data]) -> Ledger | None:
    """Refuse a plan that costs more than its budget before anything is released; return what is paid so far."""
    if not isinstance(method, Private):
        return None
    n = n_clients if method.plan.privacy.unit is Unit.CLIENT else sum(X.shape[0] for X in Xs)
    method.plan.ledger(rounds, n)
    return method.plan.ledger(done, n)


def check_noise(method: Method, *, masks: bool) -> None:
    """Refuse to show single messages that carry only their part of the noise."""
    if isinstance(method, Private) and method.plan.parts > 1 and not masks:
        raise PrivacyError(
            f"this plan gives every message 1/{method.plan.parts} of the noise, for secure summation, and this engine "
            "does not mask messages. Use the engine Secure(), or a plan with parts=1."
        )


def costs_of(method: Method, t: int) -> dict[str, Cost] | None:
    """Return the price of every array of round t; None where nothing is private."""
    return method.plan.costs(t) if isinstance(method, Private) else None


def check_paid(message: Message, declared: Mapping[str, Cost], *, client: int, t: int) -> None:
    """Refuse a message that has not paid what the plan says."""
    paid = {name: release.cost for name, release in message.cost.items()}
    if paid != declared:
        raise ClientError(f"client {client}, round {t}: expected the costs {declared}, found {paid}.")
