"""A private run pays: its whole allowance is checked before it starts, and every round is charged before it begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cofactor.method import Method
from cofactor.plan import Plan
from cofactor.privacy.accountant import Cost, Ledger
from cofactor.privacy.errors import PrivacyError
from cofactor.types import ClientError, Message, Shared


def open_ledger(method: Method, plan: Plan, done: int, n_clients: int) -> Ledger | None:
    """Refuse a run that costs more than its budget before anything is released; return what is paid so far."""
    allowance = method.traits.allowance
    if allowance is None:
        return None
    plan.check_budget(method, n_clients)
    return allowance.ledger(done)


def check_noise(method: Method, *, masks: bool) -> None:
    """Refuse to show single messages that carry only their part of the noise."""
    allowance = method.traits.allowance
    if allowance is not None and allowance.parts > 1 and not masks:
        raise PrivacyError(
            f"this budget gives every message 1/{allowance.parts} of the noise, for secure summation, and this engine "
            "does not mask messages. Use the engine Secure(), or parts=1."
        )


def remark_of(method: Any, shared: Shared) -> str:
    """Return what a private method has to say of its factor."""
    return method.remark(shared)


def costs_of(method: Method, t: int) -> dict[str, Cost] | None:
    """Return the price of every array of round t; None where nothing is private."""
    allowance = method.traits.allowance
    return None if allowance is None else allowance.costs(t)


def check_paid(message: Message, declared: Mapping[str, Cost], *, client: int, t: int) -> None:
    """Refuse a message that has not paid what the allowance says."""
    paid = {name: release.cost for name, release in message.cost.items()}
    if paid != declared:
        raise ClientError(f"client {client}, round {t}: expected the costs {declared}, found {paid}.")
