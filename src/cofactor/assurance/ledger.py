"""What left each client: ``ledger.jsonl``, one line per array, and for every client a hash chain of its own.

One file holds all clients, so that it can be read as one table. The lines of a client form a chain, which begins at the
identity of the run and the client's name and can be checked without the lines of the others. The manifest keeps where
every chain ended.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cofactor.assurance import chain
from cofactor.assurance.chain import Seal
from cofactor.engines.contract import Answer
from cofactor.privacy.accountant import Cost, Mechanism, Spend, Unit, spend
from cofactor.privacy.allowance import Release
from cofactor.privacy.errors import PrivacyError
from cofactor.types import Array, CofactorError, Message

FILE = "ledger.jsonl"
MANY = 200
CROWD = 10_000
TOGETHER = "clients together"
"""Whose line it is where one stands for more than ``MANY`` clients that were stepped as one batch, or for the alike
messages of a round that has more than ``CROWD`` of them; ``members`` says for which clients."""


def entries(names: Sequence[str], t: int, answer: Answer) -> list[dict[str, Any]]:
    """Return one entry per client and array; of many clients together, one per array for all of them."""
    together = len(answer.clients) > MANY
    who: list[dict[str, Any]] = [{"client": names[j]} for j in answer.clients]
    if together:
        who = [{"client": TOGETHER, "clients": len(answer.clients), "members": _ranges(answer.clients)}]
    masked = {"masked": True} if answer.sent is not None else {}
    sent = _form(answer.message)
    return [
        {**client, "round": t, **array, "bytes": array["bytes"] * client.get("clients", 1), **masked}
        for client in who
        for array in sent
    ]


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


def header(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the identity of a run that its chains begin at: the manifest without what the end of the run adds."""
    return {"run": chain.digest({name: value for name, value in manifest.items() if name != "ledger"})}


def begin(run: Mapping[str, str], client: str) -> Seal:
    """Return where a client's chain begins."""
    return Seal(0, chain.digest({**run, "client": client}))


@dataclass
class Writer:
    """The watcher of a run: it writes what left the clients, and is done only when that is on disk."""

    path: Path
    manifest: Mapping[str, Any]
    names: Sequence[str]
    seals: dict[str, Seal] = field(init=False)

    def __post_init__(self) -> None:
        """Go on where the file ends."""
        self.run = header(self.manifest)
        self.seals = {client: Seal(len(own), own[-1].entry["hash"]) for client, own in _by_client(read(self.path))}

    def __call__(self, t: int, answers: Sequence[Answer]) -> None:
        """Write down a round: before anything is done with its messages."""
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for answer in _alike(answers) if len(answers) > CROWD else answers:
            for entry in entries(self.names, t, answer):
                found[entry["client"]].append(entry)
        with open(self.path, "a") as file:
            for client, own in found.items():
                links, self.seals[client] = chain.extend(own, self.seals.get(client) or begin(self.run, client))
                file.writelines(json.dumps(line) + "\n" for line in links)
            file.flush()
            os.fsync(file.fileno())


KNOWN = {"client": str, "round": int, "array": str, "shape": list, "dtype": str, "bytes": int}
"""What every entry must have to be read as one."""


class Line(NamedTuple):
    """An entry and the number of its line, from 1; the entry is empty where the line cannot be read."""

    number: int
    entry: dict[str, Any]


def read(path: Path) -> list[Line]:
    """Read a ledger as it is; a file that is not there is an empty one."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return [Line(i, _entry(line)) for i, line in enumerate(text.split("\n"), start=1) if line.strip()]


def _entry(text: str) -> dict[str, Any]:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    known = isinstance(entry, dict) and all(isinstance(entry.get(name), kind) for name, kind in KNOWN.items())
    whole = known and all(isinstance(n, int) and n >= 0 for n in entry["shape"])
    return entry if whole else {}


def _by_client(lines: Sequence[Line]) -> list[tuple[str, list[Line]]]:
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.entry:
            found[line.entry["client"]].append(line)
    return list(found.items())


def unreleased(path: Path, rounds: int) -> None:
    """Refuse to go on after ``rounds`` rounds where a later one was released: never twice for one budget."""
    late = [line for line in read(path) if not line.entry or line.entry["round"] >= rounds]
    if late:
        t = late[0].entry.get("round", rounds)
        raise PrivacyError(
            f"{path}: expected the releases of {rounds} rounds, as the checkpoint holds; found round {t} as well. The "
            "run was cut off after that release: its budget is spent, and a second release with fresh noise would "
            "spend it again. Start a new run with a budget of its own; what this one has spent stays spent."
        )


class Chain(NamedTuple):
    """What became of one client's chain; ``fault`` is empty where it holds."""

    client: str
    entries: int
    last: str
    fault: str = ""


@dataclass(frozen=True)
class Check:
    """The chains of all clients, and faults that belong to none of them."""

    chains: list[Chain]
    faults: list[str]
    sealed: bool

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.faults and not any(c.fault for c in self.chains)

    def all_faults(self) -> list[str]:
        """Return every fault in words."""
        return [*self.faults, *(c.fault for c in self.chains if c.fault)]


def verify(path: Path, manifest: Mapping[str, Any], rounds: Sequence[int] = ()) -> Check:
    """Check every chain from its header to its seal; ``rounds`` are those that the history knows of."""
    lines, run = read(path), header(manifest)
    faults = [f"{FILE}, line {line.number}: cannot be read" for line in lines if not line.entry]
    chains = [_check(client, own, begin(run, client)) for client, own in _by_client(lines)]
    sealed = manifest.get("ledger")
    if sealed:
        ends = {client: Seal(*seal) for client, seal in sealed["clients"].items()}
        chains = [_against(c, ends.get(c.client)) for c in chains]
        missing = set(ends) - {c.client for c in chains}
        chains += [Chain(c, 0, "", f"{FILE}: all {ends[c].entries} lines of {c} were removed") for c in sorted(missing)]
    silent = sorted(set(rounds) - {line.entry.get("round") for line in lines})
    if silent:
        faults.append(f"{FILE}: says nothing of round {silent[0]}, which is in the history: lines were removed")
    return Check(chains, faults, bool(sealed))


def _check(client: str, own: list[Line], begin: Seal) -> Chain:
    seal, broken = chain.check((line.entry for line in own), begin.last)
    if broken is None:
        return Chain(client, *seal)
    return Chain(client, *seal, f"{FILE}, line {own[broken.at].number} ({client}): {broken.reason}")


def _against(found: Chain, seal: Seal | None) -> Chain:
    """Compare where a chain ends with where it ended when the run was over."""
    if found.fault or (seal and seal == (found.entries, found.last)):
        return found
    if seal is None:
        return found._replace(fault=f"{FILE}: lines of {found.client} were added after the end of the run")
    what = "removed from" if found.entries < seal.entries else "added to"
    return found._replace(
        fault=f"{FILE}: expected {seal.entries} lines of {found.client}, found {found.entries}: lines were {what} the "
        "end"
    )


def cost_of(entry: Mapping[str, Any]) -> Cost | None:
    """Return what an entry cost, or None for a release without noise."""
    paid = entry.get("cost")
    if not paid:
        return None
    try:
        return Cost(**{**paid, "mechanism": Mechanism(paid["mechanism"]), "unit": Unit(paid["unit"])})
    except (TypeError, KeyError, ValueError) as error:
        raise CofactorError(f"{FILE}: expected the cost of a release, found {paid!r} ({error}).") from error


def spent(lines: Sequence[Line], delta: float) -> Spend | None:
    """Return what the releases cost together, or None where one had no noise.

    Every unit is at one client, so an array that all clients send in a round is paid for once: at the highest price.
    """
    costs: dict[tuple[int, str, int], Cost] = {}
    for _, own in _by_client(lines):
        times: Counter[tuple[int, str]] = Counter()
        for line in own:
            cost, what = cost_of(line.entry), (line.entry["round"], line.entry["array"])
            if cost is None:
                return None
            key = (*what, times[what])
            times[what] += 1
            costs[key] = min(costs.get(key, cost), cost, key=lambda c: c.multiplier)
    return spend(costs.values(), delta) if costs else None
