"""The ledger of some data over all runs: ``Privacy(ledger="site.jsonl")``.

It begins with a total that all runs together may cost, and every round is charged in it before anything is released. It
is signed by a key beside it, ``site.key``, which also tells data apart: by the sum of keyed hashes of their rows, so
that the same rows are known again in any order, in any split into clients, dense or sparse. Without the key that
number says nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scipy import sparse

from cofactor.files import command, held
from cofactor.local import arrays
from cofactor.local.columns import SomeColumns
from cofactor.privacy import chain, signing
from cofactor.privacy.accountant import Budget, Cost, Spend, Unit, check_unit, spend
from cofactor.privacy.book import NOTHING, Book
from cofactor.privacy.chain import Seal
from cofactor.privacy.charges import Costs, costs_from, entries_of, to_record
from cofactor.privacy.errors import (
    BudgetError,
    DamagedLedgerError,
    LedgerError,
    OtherDataError,
    UnitError,
    UnsignedLedgerError,
)
from cofactor.types import Data

EDITION = 1
CHAIN = "ledger"
EXTENT = "a ledger over runs"
"""What the signature of its seal is of."""
WHOLE = 1 << 256


@dataclass
class Account:
    """A ledger over runs, as its file says; with its key it can be charged."""

    path: Path
    entries: list[dict[str, Any]] = field(default_factory=list)
    key: signing.Key | None = None

    @property
    def book(self) -> Book:
        """Its file."""
        return Book(self.path)

    @property
    def key_file(self) -> Path:
        """Where its key lies."""
        return self.path.with_suffix(".key")

    @property
    def public(self) -> str:
        """The public key that it names."""
        return str(self.entries[0].get("public")) if self.entries else ""

    @property
    def last(self) -> str:
        """The hash of its last line: kept elsewhere, it shows when the ledger is put back to an older copy."""
        return str(self.entries[-1].get("hash")) if self.entries else ""

    @property
    def budget(self) -> Budget:
        """The total of all runs."""
        return Budget(self.entries[0]["epsilon"], self.entries[0]["delta"])

    @property
    def unit(self) -> Unit:
        """What the total is for: one record, or what one client holds."""
        return Unit(self.entries[0]["unit"])

    @property
    def charges(self) -> list[dict[str, Any]]:
        """The lines of all rounds of all runs."""
        return self.entries[1:]

    def costs(self) -> list[Cost]:
        """Return everything that was charged."""
        return [cost for entry in self.charges for cost in self._costs(entry).values()]

    def _costs(self, entry: dict[str, Any]) -> dict[str, Cost]:
        return costs_from(entry.get("costs"), self.path.name)

    def spent(self) -> Spend:
        """Return what all runs cost together."""
        return replace(spend(self.costs(), self.budget.delta), unit=self.unit, relation=self.unit.relation)

    def faults(self) -> list[str]:
        """Say what is wrong with the file; a key that is here must be the one that it names."""
        name, ends = self.path.name, self.book.ends()
        if not self.entries or self.entries[0].get("ledger") != EDITION:
            return [f"{name}, line 1: expected the total of a ledger over runs, found something else"]
        seal, broken = chain.check(self.entries, begin(self.public).last, self.public)
        found = [f"{name}, line {broken.at + 1}: {broken.reason}"] if broken else []
        if self.key_file.exists() and signing.load(self.key_file).public != self.public:
            found.append(
                f"{name}, line 1: names another key than {self.key_file.name}: it was signed with a foreign key"
            )
        if ends is None:
            found.append(f"{self.book.seal.name}: expected the end of the ledger, found none: lines may be missing")
        elif not broken and ends.chains.get(CHAIN) != seal:
            sealed = ends.chains.get(CHAIN, NOTHING)
            what = "removed from" if seal.entries < sealed.entries else "added to"
            found.append(f"{name}: expected {sealed.entries} lines, found {seal.entries}: lines were {what} the end")
        if ends is not None and (fault := ends.fault(EXTENT, CHAIN, self.public)):
            found.append(f"{self.book.seal.name}: {fault}")
        return found

    def verify(self) -> None:
        """Refuse a ledger that is not as it was written."""
        found = self.faults()
        if found:
            kind = UnsignedLedgerError if any("signed" in fault for fault in found) else DamagedLedgerError
            raise kind(
                f"{self.path}: the ledger does not hold: {found[0]}. Look at it with "
                f"{command('ledger verify', self.path)} and {command('ledger show', self.path)}; nothing is added up "
                "from one that does not hold."
            )

    def check(self, data: str, planned: Sequence[Costs]) -> None:
        """Refuse a run over other data, of another unit, or whose rounds to come cost more than is left."""
        others = {entry.get("data") for entry in self.charges} - {data}
        if others:
            raise OtherDataError(
                f"{self.path}: a ledger of other data: its {len(self.charges)} rounds were charged for other rows than "
                "those of this run. Data that were never used in a private run begin a ledger of their own; where rows "
                "are in both, what the other ledger says of them counts too."
            )
        new = [cost for costs in planned for cost in costs.values()]
        if not all(cost.private for cost in new):
            raise LedgerError(
                f"{self.path}: a ledger over runs counts private releases only. Found noise from an insecure seed, "
                "which can be taken out: no total would hold after it. Leave out the seed, or the ledger."
            )
        units = {Unit(cost.unit) for cost in new} - {self.unit}
        if units:
            raise UnitError(f"{self.path}: a ledger of the unit {self.unit}. Found a run with the unit {units.pop()}.")
        after, before = spend([*self.costs(), *new], self.budget.delta), self.spent()
        if after.epsilon > self.budget.epsilon * (1 + 1e-9):
            raise BudgetError(
                f"{self.path}: the total of all runs is epsilon = {self.budget.epsilon:g} at delta = "
                f"{self.budget.delta:g}, of which {before.epsilon:.6g} is spent; with this run it would be "
                f"{after.epsilon:.6g}. Nothing was released. Ask for less, or end here: there is no reset."
            )

    def charge(self, run: str, t: int, data: str, costs: Costs) -> None:
        """Write down the price of a round; it is on disk when this returns.

        Twice for one round of one run, where two copies of a run go on, or one was cut off right after this.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._add({"run": run, "round": t, "data": data, "charged": now, "costs": to_record(costs)})

    def _add(self, entry: dict[str, Any]) -> None:
        assert self.key is not None
        last = self.entries[-1]["hash"] if self.entries else begin(self.key.public).last
        link = chain.link(entry, last)
        link["signature"] = self.key.sign(link["hash"])
        seal = Seal(len(self.entries) + 1, link["hash"])
        self.book.add([link], {CHAIN: seal}, {CHAIN: self.key.sign(chain.end(EXTENT, CHAIN, seal))})
        self.entries.append(link)


def begin(public: str) -> Seal:
    """Return where the chain of a ledger begins."""
    return Seal(0, chain.digest({"ledger over runs": EDITION, "public": public}))


def new(path: Path, *, epsilon: float, delta: float, unit: Unit | str = Unit.RECORD) -> Account:
    """Begin a ledger with the total that all runs together may cost, and make its key."""
    unit = check_unit(unit)
    Budget(epsilon, delta)
    if path.exists():
        raise LedgerError(f"{path}: expected no file, found one; a ledger is never written over.")
    path.parent.mkdir(parents=True, exist_ok=True)
    account = Account(path)
    account.key = signing.make(account.key_file)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    total = {"epsilon": float(epsilon), "delta": float(delta), "unit": str(unit)}
    account._add({"ledger": EDITION, **total, "public": account.key.public, "begun": now})
    return account


def read(path: Path) -> Account:
    """Read a ledger as it is, whole or not."""
    if not path.is_file():
        begin = command("ledger new", path, "--epsilon 4 --delta 1e-6")
        raise LedgerError(
            f"{path}: expected a ledger over runs, found none; {begin} begins one with the total that all runs may "
            "cost."
        )
    return Account(path, entries_of(Book(path).text()))


@contextmanager
def opened(path: Path) -> Iterator[Account]:
    """Hold a ledger alone, verified, for a whole run; other runs wait."""
    path = path.resolve()  # by whatever name it is called
    read(path)  # say at once that there is none
    with held(path.with_name(f"{path.name}.lock"), f"the ledger {path}"):
        Book(path).complete()
        account = read(path)
        account.key = signing.load(account.key_file)
        account.verify()
        yield account


def fingerprint(X: Data, secret: bytes) -> int:
    """Return the sum of the keyed hashes of the rows of X, modulo 2^256; only values count, not how they are kept."""
    total = 0
    for _, block in arrays.blocks(X.inner if isinstance(X, SomeColumns) else X):
        rows = sparse.csr_matrix(block)
        places, values = rows.indices.astype("<i8"), rows.data.astype("<f8")
        for a, b in zip(rows.indptr[:-1], rows.indptr[1:]):
            row = places[a:b].tobytes() + values[a:b].tobytes()
            total += int.from_bytes(hmac.digest(secret, row, "sha256"), "big")
    return total % WHOLE


def tag(parts: Sequence[int], features: int, secret: bytes) -> str:
    """Return what data are known by: of the fingerprints of all clients together."""
    whole = f"{sum(parts) % WHOLE:x} {features}".encode()
    return hmac.digest(secret, whole, "sha256").hex()
