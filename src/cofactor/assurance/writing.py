"""Lines of a ledger as they are written: what left each client, and in a private run what was charged before it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cofactor import files
from cofactor.assurance import ledger
from cofactor.assurance.ledger import CROWD, MANY, TOGETHER
from cofactor.engines.contract import Answer
from cofactor.privacy import chain
from cofactor.privacy.allowance import Release
from cofactor.privacy.book import NOTHING, Book
from cofactor.privacy.chain import Seal
from cofactor.privacy.charges import Costs, to_record
from cofactor.privacy.signing import Key
from cofactor.types import Array, Message


def sent(names: Sequence[str], t: int, answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return the entries of a round, those of a client one after the other."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for answer in _alike(answers) if len(answers) > CROWD else answers:
        for entry in entries(names, t, answer):
            found[entry["client"]].append(entry)
    return [entry for own in found.values() for entry in own]


def charged(names: Sequence[str], t: int, costs: Costs, participants: Array) -> list[dict[str, Any]]:
    """Return what is charged for a round before it begins: one entry for each client, or one for many."""
    return [{**client, "round": t, "costs": to_record(costs)} for client in _who(names, participants)]


def entries(names: Sequence[str], t: int, answer: Answer) -> list[dict[str, Any]]:
    """Return one entry per client and array; of many clients together, one per array for all of them."""
    masked = {"masked": True} if answer.sent is not None else {}
    sent = _form(answer.message)
    return [
        {**client, "round": t, **array, "bytes": array["bytes"] * client.get("clients", 1), **masked}
        for client in _who(names, answer.clients)
        for array in sent
    ]


def _who(names: Sequence[str], clients: Array) -> list[dict[str, Any]]:
    """Name the clients of some lines; many are named together."""
    if len(clients) > MANY:
        return [{"client": TOGETHER, "clients": len(clients), "members": _ranges(clients)}]
    return [{"client": names[j]} for j in clients]


def _alike(answers: Sequence[Answer]) -> list[Answer]:
    """Put answers together that differ in nothing that the ledger says: form, bound, noise and cost."""
    groups: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        groups[json.dumps([_form(answer.message), answer.sent is not None])].append(answer)
    return [
        Answer(np.sort(np.concatenate([r.clients for r in found])), found[0].message, found[0].sent)
        for found in groups.values()
    ]


def _form(message: Message) -> list[dict[str, Any]]:
    """Return what is known of every array that one client sent."""
    return [_sent(message, name, message.cost.get(name)) for name in message.arrays]


def _sent(message: Message, name: str, release: Release | None) -> dict[str, Any]:
    """Return what is known of one array: its form, and how it was released."""
    array = np.asarray(message.arrays[name])
    shape, dtype = array.shape, np.dtype(message.dtypes.get(name, array.dtype))
    size = int(np.prod(shape)) * dtype.itemsize
    form = {"array": name, "shape": list(shape), "dtype": str(dtype), "bytes": size}
    if release is None:
        return {**form, **dict.fromkeys(("clip", "noise", "mechanism", "multiplier", "cost"))}
    cost = asdict(release.cost)
    paid = {"mechanism": str(release.cost.mechanism), "multiplier": float(release.cost.multiplier)}
    return {**form, "clip": float(release.clip), "noise": float(release.sigma), **paid, "cost": {**cost, **paid}}


def _ranges(numbers: Array) -> str:
    """Write ascending client numbers briefly: ``0-4,7``."""
    ends = [-1, *np.flatnonzero(np.diff(numbers) != 1).tolist(), len(numbers) - 1]
    runs = [(int(numbers[a + 1]), int(numbers[b])) for a, b in pairwise(ends)]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


@dataclass
class Writer:
    """The watcher of a run without noise: it writes what left the clients, and is done only when that is on disk."""

    path: Path
    manifest: Mapping[str, Any]
    names: Sequence[str]
    seals: dict[str, Seal] = field(init=False)

    def __post_init__(self) -> None:
        """Go on where the file ends."""
        self.run = ledger.header(self.manifest)
        self.seals = ledger.ends(self.path) if self.path.exists() else {}

    def __call__(self, t: int, answers: Sequence[Answer]) -> None:
        """Write down a round: before anything is done with its messages."""
        lines = []
        for entry in sent(self.names, t, answers):
            seal = self.seals.get(entry["client"]) or ledger.begin(self.run, entry["client"])
            (line,), self.seals[entry["client"]] = chain.extend([entry], seal)
            lines.append(json.dumps(line) + "\n")
        files.add(self.path, "".join(lines), sure=True)


class Party(NamedTuple):
    """A client as a private run begins: its public key, and its signatures of two files in which it has no line yet."""

    public: str
    begun: dict[str, str]

    @classmethod
    def of(cls, client: str, key: Key) -> Party:
        """Sign that nothing is written yet: a key is of one run."""
        return cls(key.public, {of: key.sign(chain.end(of, client, NOTHING)) for of in (ledger.FILE, ledger.CHARGES)})


def begin(folder: Path, parties: Mapping[str, Party]) -> None:
    """Seal the two files of a private run, in which nothing is written yet."""
    for of in (ledger.FILE, ledger.CHARGES):
        begun = {client: party.begun[of] for client, party in parties.items()}
        Book(folder / of).add([], dict.fromkeys(parties, NOTHING), begun)


@dataclass
class Signed:
    """A file of a private run, the charges or the ledger: every line is signed by its client, wherever that lives.

    So a line is written in two steps: what it will be, and, when its client has signed that, and where its lines end
    then, the line itself.
    """

    book: Book
    run: Mapping[str, str]
    seals: dict[str, Seal] = field(init=False)
    ends: dict[str, str] = field(init=False)
    links: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Go on where the file ends, with what a crash kept from it."""
        self.book.complete()
        found = self.book.ends()
        self.seals = {} if found is None else dict(found.chains)
        self.seals |= ledger.ends(self.book.path, of=self.book.path.name)
        self.ends = {} if found is None else dict(found.signatures)

    def prepare(self, entries: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
        """Chain new entries; return client and hash of each, and of where the clients' lines end, to be signed."""
        self.links, of = [], self.book.path.name
        for entry in entries:
            client = entry["client"]
            seal = self.seals.get(client, NOTHING)
            if not seal.entries:
                seal = ledger.begin(self.run, client, of)
            (link,), self.seals[client] = chain.extend([entry], seal)
            self.links.append(link)
        told = [(link["client"], link["hash"]) for link in self.links]
        return told + [(client, chain.end(of, client, self.seals[client])) for client in self._writers()]

    def _writers(self) -> list[str]:
        return list(dict.fromkeys(link["client"] for link in self.links))

    def write(self, signatures: Mapping[int, str]) -> None:
        """Write the entries that were prepared; they are on disk when this returns."""
        self.ends |= {client: signatures[i] for i, client in enumerate(self._writers(), start=len(self.links))}
        lines = [{**link, "signature": signatures[i]} for i, link in enumerate(self.links)]
        self.book.add(lines, self.seals, self.ends)
