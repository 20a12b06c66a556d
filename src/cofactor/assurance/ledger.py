"""What left each client: ``ledger.jsonl``, one line per array; and of a private run ``charges.jsonl``, what it pays.

A file holds all clients, so that it can be read as one table. The lines of a client form a chain, which begins at the
identity of the run and the client's name and can be checked without the lines of the others. In a private run every
line is signed by its client, with the key in the client's own folder, whose public half is in the manifest; and what a
round may release is charged, on disk, before the round begins. Where its chain ends each client signs too: in the seal
of each file while the run goes on, in the manifest once it is over.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cofactor.files import command
from cofactor.privacy import chain
from cofactor.privacy.accountant import Cost
from cofactor.privacy.book import Book
from cofactor.privacy.chain import Seal
from cofactor.privacy.charges import cost_from, costs_from
from cofactor.privacy.errors import DamagedLedgerError, UnsignedLedgerError
from cofactor.privacy.signing import signed

FILE, CHARGES = "ledger.jsonl", "charges.jsonl"
MANY = 200
CROWD = 10_000
TOGETHER = "clients together"
"""Whose line it is where one stands for more than ``MANY`` clients that were stepped as one batch, or for the alike
messages of a round that has more than ``CROWD`` of them; ``members`` says for which clients."""
KNOWN = {
    FILE: {"client": str, "round": int, "array": str, "shape": list, "dtype": str, "bytes": int},
    CHARGES: {"client": str, "round": int, "costs": dict},
}
"""What every entry must have to be read as one."""
NO_KEYS = (
    "manifest.json: names no keys: the first edition of cofactor wrote this private run, or its keys were removed; "
    "whoever can write a ledger that is not signed can write another one"
)


def header(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the identity of a run that its chains begin at: the manifest without what the end of the run adds."""
    return {"run": chain.digest({name: value for name, value in manifest.items() if name != "ledger"})}


def begin(run: Mapping[str, str], client: str, of: str = FILE) -> Seal:
    """Return where a client's chain in a file begins."""
    return Seal(0, chain.digest({**run, "client": client, **({} if of == FILE else {"of": of})}))


class Line(NamedTuple):
    """An entry and the number of its line, from 1; the entry is empty where the line cannot be read."""

    number: int
    entry: dict[str, Any]


def read(path: Path, of: str = FILE) -> list[Line]:
    """Read a ledger, or its charges, as it is; a file that is not there is an empty one."""
    return [Line(i, _entry(line, of)) for i, line in enumerate(Book(path).text().split("\n"), start=1) if line.strip()]


def _entry(text: str, of: str) -> dict[str, Any]:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    known = isinstance(entry, dict) and all(isinstance(entry.get(name), kind) for name, kind in KNOWN[of].items())
    whole = known and all(isinstance(n, int) and n >= 0 for n in entry.get("shape", ()))
    return entry if whole else {}


def _by_client(lines: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.entry:
            found[line.entry["client"]].append(line)
    return list(found.items())


def ends(path: Path, of: str = FILE) -> dict[str, Seal]:
    """Return where every client's chain ends, as its last line says."""
    return {client: Seal(len(own), own[-1].entry["hash"]) for client, own in _by_client(read(path, of))}


class Chain(NamedTuple):
    """What became of one client's chain; ``fault`` is empty where it holds."""

    client: str
    entries: int
    last: str
    fault: str = ""


@dataclass(frozen=True)
class Check:
    """The chains of all clients, and faults that belong to none of them.

    ``sealed`` says whether the run is over, so that a missing end shows; ``keys`` are the public keys that signed, by
    client, and ``own`` the clients whose own key was here to compare.
    """

    chains: list[Chain]
    faults: list[str]
    sealed: bool
    charges: list[Chain] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    own: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.all_faults()

    def all_faults(self) -> list[str]:
        """Return every fault in words."""
        return [*self.faults, *(c.fault for c in (*self.charges, *self.chains) if c.fault)]

    def require(self, where: Path) -> None:
        """Refuse a ledger that does not hold."""
        if not self.ok:
            first = self.all_faults()[0]
            kind = UnsignedLedgerError if "signed" in first else DamagedLedgerError
            raise kind(
                f"{where}: the ledger does not hold: {first}. Look at it with {command('ledger verify', where)} and "
                f"{command('ledger show', where)}; nothing is added up from one that does not hold, and no run goes on."
            )


def verify(
    folder: Path,
    manifest: Mapping[str, Any],
    rounds: Sequence[int] = (),
    own: Mapping[str, str] | None = None,
    *,
    private: bool = False,
    over: Sequence[str] = (),
) -> Check:
    """Check every chain of a run from its header to its end, and who signed it.

    ``rounds`` are those that the history knows of, ``own`` the public keys of clients whose folders are here. A run is
    ``private`` if its settings say so, even where its manifest does not; ``over`` are files that are written after the
    end of the ledger.
    """
    own = own or {}
    private, keys = private or manifest.get("privacy") is not None, dict(manifest.get("keys") or {})
    ended = manifest.get("ledger")
    lines = read(folder / FILE)
    faults = [NO_KEYS] if private and not keys else []
    faults += [_foreign(name) for name, public in own.items() if keys and keys.get(name) != public]
    silent = sorted(set(rounds) - {line.entry.get("round") for line in lines})
    if silent:
        faults.append(f"{FILE}: says nothing of round {silent[0]}, which is in the history: lines were removed")
    found, bad = _file(folder, FILE, lines, manifest, ended and ended["clients"])
    if not keys:
        return Check(found, [*bad, *faults], bool(ended))
    paid = read(folder / CHARGES, CHARGES)
    charges, more = _file(folder, CHARGES, paid, manifest, ended and ended.get("charges"))
    faults += [*bad, *more]
    if not any(c.fault for c in (*found, *charges)):  # else that says more
        faults += _unpaid([line for line in lines if private or line.entry.get("cost") is not None], paid)
    if ended:
        faults += _unsigned_end(header(manifest), ended, keys)
    elif over:
        faults.append(
            f"manifest.json: expected the signed end of the ledger, since {over[0]} says that the run is over, found "
            "none: it was removed, or an edition of cofactor that wrote it later was cut off"
        )
    return Check(found, faults, bool(ended), charges, keys, sorted(set(own) & set(keys)))


def _foreign(client: str) -> str:
    return (
        f"manifest.json: names another key of {client} than its own folder has: the run was signed with a foreign key"
    )


def _file(
    folder: Path, of: str, lines: list[Line], manifest: Mapping[str, Any], ended: Mapping[str, Any] | None
) -> tuple[list[Chain], list[str]]:
    """Check the chains of one file; they end where the manifest says or, of a private run that goes on, the seal."""
    run, keys = header(manifest), manifest.get("keys")
    faults = [f"{of}, line {line.number}: cannot be read" for line in lines if not line.entry]
    public = (lambda client: str(keys.get(client))) if keys else (lambda client: None)
    chains = [_check(of, client, own, begin(run, client, of), public(client)) for client, own in _by_client(lines)]
    ends = None if ended is None else {client: Seal(*seal) for client, seal in ended.items()}
    if ends is None and keys:
        seal = Book(folder / of).ends()
        if seal is None:
            return chains, [*faults, f"{of}.seal: expected the end of the file, found none: lines may be missing"]
        bad = [seal.fault(of, client, str(public)) for client, public in keys.items()]
        faults += [f"{of}.seal: {fault}" for fault in dict.fromkeys(filter(None, bad))]
        ends = {client: end for client, end in seal.chains.items() if end.entries}
    if ends is not None:
        chains = [_against(of, c, ends.get(c.client)) for c in chains]
        missing = sorted(set(ends) - {c.client for c in chains})
        chains += [Chain(c, 0, "", f"{of}: all {ends[c].entries} lines of {c} were removed") for c in missing]
    return chains, faults


def _check(of: str, client: str, own: list[Line], begin: Seal, public: str | None) -> Chain:
    seal, broken = chain.check((line.entry for line in own), begin.last, public)
    if broken is None:
        return Chain(client, *seal)
    return Chain(client, *seal, f"{of}, line {own[broken.at].number} ({client}): {broken.reason}")


def _against(of: str, found: Chain, seal: Seal | None) -> Chain:
    """Compare where a chain ends with where it ended."""
    if found.fault or (seal and seal == (found.entries, found.last)):
        return found
    if seal is None:
        return found._replace(fault=f"{of}: lines of {found.client} were added after the end of the run")
    what = "removed from" if found.entries < seal.entries else "added to"
    return found._replace(
        fault=f"{of}: expected {seal.entries} lines of {found.client}, found {found.entries}: lines were {what} the end"
    )


def _unpaid(lines: Sequence[Line], paid: Sequence[Line]) -> list[str]:
    """Say which releases were not charged as they are."""
    known: dict[tuple[int, str], list[Any]] = defaultdict(list)
    for line in paid:
        for name, cost in line.entry.get("costs", {}).items():
            prices = known[line.entry["round"], name]
            prices += [] if cost in prices else [cost]
    return [
        f"{FILE}, line {number}: {entry['array']!r} left in round {entry['round']} at a price that was not charged"
        for number, entry in lines
        if entry and entry.get("cost") not in known[entry["round"], entry["array"]]
    ]


def end_of(run: Mapping[str, str], client: str, ended: Mapping[str, Any]) -> str:
    """Return what a client signs when a run is over: where its chains end."""
    ends = {of: list(ended[of].get(client) or ()) for of in ("clients", "charges")}
    return chain.digest({**run, "client": client, "over": ends})


def _unsigned_end(run: Mapping[str, str], ended: Mapping[str, Any], keys: Mapping[str, str]) -> list[str]:
    signatures = ended.get("signatures") or {}
    return [
        f"manifest.json: the end of the ledger is not signed by {client}: lines may have been removed"
        for client, public in keys.items()
        if not signed(public, end_of(run, client, ended), signatures.get(client))
    ]


def cost_of(entry: Mapping[str, Any]) -> Cost | None:
    """Return what an entry cost, or None for a release without noise."""
    return cost_from(entry["cost"], FILE) if entry.get("cost") else None


def charged(lines: Sequence[Line]) -> list[dict[str, Cost]]:
    """Return what was charged, by round. Every unit is at one client, so that a round is paid for once, not by each."""
    found: dict[int, dict[str, Cost]] = {}
    for line in lines:
        costs = costs_from(line.entry.get("costs"), f"{CHARGES}, line {line.number}")
        if found.setdefault(line.entry["round"], costs) != costs:
            raise DamagedLedgerError(
                f"{CHARGES}, line {line.number}: round {line.entry['round']} was charged at two prices"
            )
    if sorted(found) != list(range(len(found))):
        raise DamagedLedgerError(f"{CHARGES}: expected the rounds from 0 on, found {sorted(found)[:5]}.")
    return [found[t] for t in range(len(found))]
