"""A private run pays: its whole allowance is checked before it starts, and every round is charged before it begins.

What is charged is on disk before anything can leave. Beside a checkpoint (or in a run folder) lies what this run has
charged: a round that is charged, and whose result the checkpoint does not hold, may have been released, and is never
repeated. A ledger over runs (``Privacy(ledger=...)``) is held alone for the whole run.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cofactor.engines.checkpoint import Checkpoint
from cofactor.engines.contract import Answer, Rebuilt, Session
from cofactor.engines.host import Host
from cofactor.engines.team import Team
from cofactor.files import held
from cofactor.method import Method
from cofactor.privacy import account
from cofactor.privacy.accountant import Ledger, spend
from cofactor.privacy.allowance import WHOLE
from cofactor.privacy.charges import Beside, Charges, Costs, same
from cofactor.privacy.errors import LedgerError, PrivacyError, ReleasedError
from cofactor.types import Array, ClientError, CofactorError, Shared


def check_noise(method: Method, *, masks: bool) -> None:
    """Refuse to show single messages that carry only their part of the noise."""
    allowance = method.traits.allowance
    if allowance is not None and allowance.parts != WHOLE and not masks:  # spare noise comes with its seed
        raise PrivacyError(
            f"this budget gives every message 1/{max(allowance.parts)} of the noise, for secure summation, and this "
            "engine does not mask messages. Use the engine Secure(), or parts=WHOLE."
        )


def check_prices(method: Method, features: int, rounds: int) -> None:
    """Refuse a private method that would send what its budget has no price for: one made of others by hand, say."""
    allowance = method.traits.allowance
    if allowance is None:
        return
    for t in range(rounds):
        priced = set(allowance.shares[t]) if t < len(allowance.shares) else set()
        if not priced or set(method.schema(features, t)) != priced:
            raise PrivacyError(
                f"round {t}: expected a method that sends {_names(priced)}, as its budget has a price for. Found one "
                f"that sends {_names(method.schema(features, t))}: starts, stages and races of a private method are "
                "releases of their own. Run each of them alone, with a budget of its own."
            )


def _names(arrays: Iterable[str]) -> str:
    return ", ".join(sorted(arrays)) or "nothing"


def remark_of(method: Any, shared: Shared) -> str:
    """Return what a private method has to say of its factor."""
    return method.remark(shared)


def check_factor(shared: Shared, rank: int, features: int) -> None:
    """Refuse to go on from what is no factor: clients must not be the ones who find out."""
    if shared.factor.shape != (rank, features) or not np.isfinite(shared.factor).all():
        raise CofactorError(
            f"the checkpoint: expected finite numbers in a factor of shape {(rank, features)}, found others: it was "
            "changed, or is of another run. Start a new run, with another checkpoint."
        )


def check_repeat(method: Method, t: int) -> None:
    """Refuse to repeat a private round in which clients were lost: their messages may have been seen."""
    if method.traits.allowance is not None:
        raise ReleasedError(
            f"round {t}: clients were lost in a round of a private run. What they sent may have been seen, and sent "
            "again it would have fresh noise: that costs once more. The round is charged, and this run cannot go on; "
            "start a new one with a budget of its own."
        )


def check_paid(answer: Answer, declared: Costs, t: int) -> None:
    """Refuse a message that has not paid what the allowance says, or a sum that does not count its clients once."""
    paid = {name: release.cost for name, release in answer.message.cost.items()}
    if paid != declared:
        raise ClientError(f"client {answer.client}, round {t}: expected the costs {declared}, found {paid}.")
    if (weight := answer.message.weight) != len(answer.clients):
        whose = f"client {answer.client}" if len(answer.clients) == 1 else f"{len(answer.clients)} clients"
        raise ClientError(f"{whose}, round {t}: expected a weight of {len(answer.clients)}, found {weight:g}.")


@contextmanager
def opened(
    method: Method, session: Session, team: Team, checkpoint: Checkpoint | None, charges: Charges | None
) -> Iterator[Till]:
    """Hold everything that a private run is charged in, until it is over; without privacy there is nothing to hold."""
    allowance = method.traits.allowance
    till = Till(allowance, session, team, charges)
    with ExitStack() as stack:
        if allowance is not None:
            if charges is None and checkpoint is not None:
                team.alone("the charges", lambda: till.hold_charges(stack, checkpoint))
                till.charges = till.together = Together(till.beside, team)
            if allowance.privacy.ledger is not None:
                team.alone("the ledger", lambda: till.hold_account(stack, Path(allowance.privacy.ledger)))
        yield till


class Together:
    """The charges that process 0 writes, for all processes of a run."""

    def __init__(self, beside: Beside | None, team: Team) -> None:
        self.beside, self.team = beside, team
        self.run: str = team.alone("the charges", lambda: beside and beside.run) or ""

    def charged(self) -> list[Costs]:
        """Return what was charged, by round."""
        return self.team.alone("the charges", lambda: self.beside.charged() if self.beside else [])

    def know(self, tag: Callable[[bytes], str]) -> None:
        """Refuse other data than those of the rounds that were charged; ``tag`` names the data by a secret."""
        secret = self.team.alone("the charges", lambda: self.beside and self.beside.secret())
        assert secret
        data = tag(secret)
        with self.team.guard("the charges"):
            if self.beside is not None:
                self.beside.know(data)
        self.team.exchange("the charges")

    def charge(self, t: int, costs: Costs, participants: Array) -> None:
        """Write down the price of round t; all processes wait."""
        with self.team.guard("the charges"):
            if self.beside is not None:
                self.beside.charge(t, costs, participants)
        self.team.exchange("the charges")


class Till:
    """Where a run pays. Only process 0 has the files; all processes wait for it."""

    beside: Beside | None = None
    together: Together | None = None
    account: account.Account | None = None
    data = ""
    costs: list[Costs]
    paid: list[Ledger]

    def __init__(self, allowance: Any, session: Session, team: Team, charges: Charges | None) -> None:
        self.allowance, self.session, self.team, self.charges = allowance, session, team, charges
        self.run = uuid.uuid4().hex

    def hold_charges(self, stack: ExitStack, checkpoint: Checkpoint) -> None:
        """Process 0: hold what lies beside the checkpoint."""
        path = checkpoint.charges.resolve()
        stack.enter_context(held(path.with_name(f"{path.name}.lock"), f"the checkpoint {checkpoint.path}"))
        self.beside = Beside(path)

    def hold_account(self, stack: ExitStack, path: Path) -> None:
        """Process 0: hold the ledger over runs."""
        self.account = stack.enter_context(account.opened(path))

    def begin(self, done: int, limit: int) -> Ledger | None:
        """Refuse what costs too much, and to repeat a round that may have been released; return what is paid so far."""
        if self.allowance is None:
            return None
        self.costs, self.paid = self.allowance.bill(limit, self.session.n_clients)
        if self.charges is not None:
            self._check_charged(self.charges.charged(), done)
            self.run = self.charges.run
        if self.together is not None and not self.session.aloof:
            self.together.know(self._tag)
        if self.allowance.privacy.ledger is not None:
            secret = self.team.alone(
                "the ledger", lambda: self.account and self.account.key and self.account.key.secret
            )
            assert secret
            self.data = self._tag(secret)
            with self.team.guard("the ledger"):
                if self.account is not None:
                    self.account.check(self.data, self.costs[done:])
            self.team.exchange("the ledger")
        return self.paid[done]

    def _check_charged(self, charged: list[Costs], done: int) -> None:
        if len(charged) < done:
            raise LedgerError(
                f"the checkpoint holds the results of {done} rounds, and {len(charged)} are charged: the charges were "
                "cut off, or are of another run, so that what was spent is not known. Start a new run, with another "
                "checkpoint."
            )
        if not same(charged[:done], self.costs[:done]):
            raise LedgerError(
                f"the {done} rounds that the checkpoint holds were released with other noise than is asked for now. Go "
                "on with the privacy, the method and the rounds that the run began with, or start a new one with "
                "another checkpoint."
            )
        if len(charged) > done:
            spent = spend((cost for paid in charged for cost in paid.values()), self.allowance.privacy.delta)
            raise ReleasedError(
                f"expected the results of {len(charged)} rounds, as many as are charged; the checkpoint holds {done}. "
                "The run was cut off in the round after these, which may have been released: it is charged, and the "
                f"run has spent {spent}. A second release with fresh noise would cost that round again, so that this "
                "run cannot go on. Start a new run with a budget of its own; what this one has spent stays spent."
            )

    def _tag(self, secret: bytes) -> str:
        """Return what the data of all clients together are known by."""
        return account.tag(self._fingerprints(secret), self.session.n_features, secret)

    def _fingerprints(self, secret: bytes) -> list[int]:
        while True:
            try:
                return [int(part, 16) for part in self.session.everywhere(fingerprint, secret)]
            except Rebuilt:
                continue

    def charge(self, t: int, participants: Array) -> tuple[Ledger | None, Costs | None]:
        """Write down what round t may release; nothing leaves before that is on disk. Return what is paid, and for."""
        if self.allowance is None:
            return None, None
        costs = self.costs[t]
        if self.allowance.privacy.ledger is not None:
            with self.team.guard("the ledger"):
                if self.account is not None:
                    self.account.charge(self.run, t, self.data, costs)
            self.team.exchange("the ledger")
        if self.charges is not None:
            self.charges.charge(t, costs, participants)
        return self.paid[t + 1], costs


def fingerprint(host: Host, secret: bytes) -> str:
    """Host: return the fingerprint of all rows here; without the secret it says nothing of them."""
    return f"{sum(account.fingerprint(X, secret) for X in host.data()):x}"
