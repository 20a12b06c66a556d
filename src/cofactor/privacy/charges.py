"""Costs as files hold them, and the charges of a run that has no folder: beside its checkpoint."""

from __future__ import annotations

import hmac
import json
import math
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from cofactor import files
from cofactor.privacy import chain, owned
from cofactor.privacy.accountant import Cost, Mechanism, Unit
from cofactor.privacy.book import Book, Ends
from cofactor.privacy.errors import DamagedLedgerError, KeyFileError, LedgerError, OtherDataError
from cofactor.types import Array

SECRET = 64
"""Digits of the secret by which a run knows its data again."""
CHAIN, EXTENT = "run", "the charges beside a checkpoint"
"""The only chain of such charges, and what the signature of where it ends is of."""
Costs = Mapping[str, Cost]
"""The price of every array of a round."""


class Charges(Protocol):
    """Where a private run writes down what a round may release, before it begins. All processes of a run call it."""

    @property
    def run(self) -> str:
        """A name that no other run has."""
        ...

    def charged(self) -> list[Costs]:
        """Return what was charged, by round: so many rounds may have been released."""
        ...

    def charge(self, t: int, costs: Costs, participants: Array) -> None:
        """Write down the price of round t; it is on disk when this returns."""
        ...


def to_record(costs: Costs) -> dict[str, Any]:
    """Return costs as JSON knows them."""
    return {name: {**asdict(c), "mechanism": str(c.mechanism), "unit": str(c.unit)} for name, c in costs.items()}


def cost_from(paid: Any, where: str) -> Cost:
    """Return a cost that a file holds."""
    try:
        return Cost(**{**paid, "mechanism": Mechanism(paid["mechanism"]), "unit": Unit(paid["unit"])})
    except (TypeError, KeyError, ValueError) as error:
        raise LedgerError(
            f"{where}: expected the cost of a release, found {paid!r} ({error}). If the first edition of cofactor "
            "wrote it, `cofactor ledger show` prints it, but it cannot be added up."
        ) from error


def costs_from(paid: Any, where: str) -> dict[str, Cost]:
    """Return the costs of a round that a file holds."""
    if not isinstance(paid, dict):
        raise LedgerError(f"{where}: expected the costs of a round, found {paid!r}.")
    return {name: cost_from(cost, where) for name, cost in paid.items()}


def entries_of(text: str) -> list[dict[str, Any]]:
    """Return the entries of a book, an empty one for a line that cannot be read."""
    found = []
    for line in text.split("\n"):
        if line.strip():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                entry = None
            found.append(entry if isinstance(entry, dict) else {})
    return found


class Beside:
    """The charges of a run from Python, in a file beside its checkpoint: one line for each round.

    Lines, and where they end, are signed by a secret in a file of its own, for its owner alone: whoever can write the
    file and not read that cannot make what was spent look smaller. Data are known again by a keyed hash in every line.
    """

    data: str | None = None

    def __init__(self, path: Path) -> None:
        self.book, self.entries = Book(path), list[dict[str, Any]]()
        self.book.complete()
        self.entries = entries_of(self.book.text())
        self._secret = self.secret()
        self.seal, broken = chain.check(self.entries, _begin())
        ends = self.book.ends()
        known = Ends(0, "", {}, {}) if ends is None else ends
        whole = broken is None and (ends is not None) == bool(self.entries)
        if not whole or (self.entries and not self._are_signed(known)):
            raise DamagedLedgerError(
                f"{path}: expected the charges of this checkpoint, found them changed or cut off. What was released is "
                "not known, so that this run cannot go on: start a new one, with another checkpoint."
            )
        if not self.entries:
            self._add({"run": uuid.uuid4().hex})

    def _are_signed(self, ends: Ends) -> bool:
        """Whether all lines, and where they end, were written by whoever has the secret."""
        signed = [(entry["hash"], entry.get("signature")) for entry in self.entries]
        signed.append((chain.end(EXTENT, CHAIN, self.seal), ends.signatures.get(CHAIN)))
        return all(hmac.compare_digest(self._sign(digest), str(found)) for digest, found in signed)

    def _sign(self, digest: str) -> str:
        return hmac.digest(self._secret, f"cofactor charges 1 {digest}".encode(), "sha256").hex()

    @property
    def run(self) -> str:
        """The name in the first line."""
        return str(self.entries[0]["run"])

    def charged(self) -> list[Costs]:
        """Return what was charged, by round."""
        return [costs_from(entry.get("costs"), self.book.path.name) for entry in self.entries[1:]]

    def secret(self) -> bytes:
        """Return what tells data apart; one that is lost is not made again."""
        path = self.book.path.with_suffix(".secret")
        if not path.exists():
            if self.entries:
                raise LedgerError(
                    f"{path}: expected the secret by which this run knows its data again, found none; put it back, or "
                    "start a new run, with another checkpoint."
                )
            with files.atomic(path, owned.OWNER_ONLY) as file:
                file.write(secrets.token_hex(SECRET // 2).encode())
        found = owned.read(path, "the secret of a run", "start a new run, with another checkpoint")
        if len(found) != SECRET or set(found) - set(b"0123456789abcdef"):
            raise KeyFileError(
                f"{path}: expected the secret by which this run knows its data again, {SECRET} hexadecimal digits. "
                f"Found {len(found)} bytes that are not; put it back, or start a new run, with another checkpoint."
            )
        return found

    def know(self, data: str) -> None:
        """Refuse to go on with other data than those that were charged for; write down these from now on."""
        if {entry["data"] for entry in self.entries if "data" in entry} - {data}:
            raise OtherDataError(
                f"{self.book.path}: expected the rows that the run began with, found other ones. Start a new run, with "
                "another checkpoint and a budget of its own."
            )
        self.data = data

    def charge(self, t: int, costs: Costs, participants: Array) -> None:
        """Write down the price of round t."""
        known = {} if self.data is None else {"data": self.data}
        self._add({"round": t, "costs": to_record(costs), "participants": len(participants), **known})

    def _add(self, entry: dict[str, Any]) -> None:
        [link], self.seal = chain.extend([entry], self.seal)
        link["signature"] = self._sign(link["hash"])
        self.book.add([link], {CHAIN: self.seal}, {CHAIN: self._sign(chain.end(EXTENT, CHAIN, self.seal))})
        self.entries.append(link)


def _begin() -> str:
    return chain.digest("the charges of a run")


def same(charged: Sequence[Costs], planned: Sequence[Costs]) -> bool:
    """Whether rounds were charged at the prices that are planned for them, but for rounding on another machine."""
    return len(charged) == len(planned) and all(
        paid.keys() == costs.keys() and all(_alike(paid[name], costs[name]) for name in paid)
        for paid, costs in zip(charged, planned, strict=True)
    )


def _alike(one: Cost, other: Cost) -> bool:
    return replace(one, multiplier=0.0) == replace(other, multiplier=0.0) and math.isclose(
        one.multiplier, other.multiplier, rel_tol=1e-9
    )
