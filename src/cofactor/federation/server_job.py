"""The server's side of a run: meet the clients, agree with them, and carry the job over them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cofactor import __version__, kinds
from cofactor.assurance.spending import record
from cofactor.assurance.writing import Party
from cofactor.data.preparation import Preparation
from cofactor.engines.contract import check_message
from cofactor.engines.flare import Flare
from cofactor.engines.flare_clients import Clients, Wire
from cofactor.engines.flare_format import FormatError
from cofactor.engines.flare_refusals import PAUSED, LeftOut, Refused, Short, Unfit
from cofactor.engines.flare_replies import SQUARED
from cofactor.engines.history import EVENTS, event
from cofactor.engines.secure import in_words
from cofactor.federation import going_on, questions
from cofactor.federation.features import Common, Said
from cofactor.federation.terms import RunTerms
from cofactor.jobs import preparing
from cofactor.jobs.conclude import Finding
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.job import Job, carry, keys_of
from cofactor.jobs.place import Place
from cofactor.jobs.preparing import Prepared
from cofactor.jobs.reading import Inputs
from cofactor.local.columns import groups
from cofactor.method import Method
from cofactor.methods.build import Facts
from cofactor.privacy.errors import ForgedShareError, ThresholdError
from cofactor.records import Input
from cofactor.types import Array, ClientError, CofactorError, Message

WAIT = 1.0
TRIES = 2
FORGED = "Either several clients have told shares that they do not hold, or nobody can tell who has."
"""Said of a secure sum that cannot be unmasked; the round is repeated, so many times in a row."""


class Remote:
    """Data that are elsewhere: only their shape is known, and not even that where rows are nobody's business."""

    def __init__(self, rows: int | None, features: int) -> None:
        self.shape = (rows or 0, features)


class Log:
    """What happened to the clients of a run: one line each, in its folder, for the report and the page."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / EVENTS

    def __call__(self, client: str, what: str) -> None:
        """Add a line."""
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(json.dumps(event(client, what)) + "\n")


def serve(terms: RunTerms, wire: Wire, out: Path, *, stop: Callable[[], bool], started: float) -> RunFolder:
    """Carry a run over the clients of a federation, from where its folder ends."""
    log = Log(out)
    clients = Clients(wire, terms.names, terms.run, terms.patience, log)
    if terms.config.privacy is None:  # of a private run no round that was left in the middle can be repeated
        clients.stop = stop
    clients.meet()
    said = _hello(clients, log)
    found, dtype = going_on.agreed(terms, said, out)
    place = _places(clients, found)
    made, asked = _prepared(terms, clients, place, found.features, RunFolder(out).preparation())
    left = found.columns if not made else {j: made.places(index) for j, index in found.columns.items()}
    features = made.width(found.features)
    if terms.config.rank > features:
        raise CofactorError(f"rank: expected at most {features} (the features), found {terms.config.rank}.")
    known = [left[j] for j in sorted(said)] if found.union else None
    facts = _facts(terms, said, features, known)
    method, plan, rounds, _, foreseen = terms.made(facts)
    _settle(clients, place, facts, dtype, questions.learned(made.steps))
    names = _names(clients, found)
    engine = Flare(clients, features, _Reading(terms.names, features, method, silent=terms.config.apart))
    remotes: list[Any] = [Remote(said[j].rows, features) for j in sorted(said)]
    inputs = Inputs(terms.names, remotes, made.names(names), [""] * len(terms.names), known)
    arrays = preparing.learned(made, names, found.features)
    job = Job(
        terms.config,
        method,
        plan,
        inputs,
        terms.names,
        Place(engine),
        rounds,
        Prepared(arrays, asked),
        asks=True,
        foreseen=foreseen,
        asker=lambda question, t: questions.markers(engine, clients, question.factor, t),
    )
    job = going_on.begun(job, terms, out.parent)
    folder = _folder(out, job, said)

    def ends(line: Any, shared: Any) -> bool:
        if stop():
            raise Short(PAUSED)
        return False

    log("", f"begins after {time.time() - started:.1f} s")
    carry(job, folder, [ends])
    going_on.ended(terms, out)
    return folder


def _hello(clients: Clients, log: Log) -> dict[int, Said]:
    """Ask every client what it is like; wait for persons who must approve first."""
    until, waiting = time.monotonic() + clients.patience.approval, ""
    while True:
        try:
            found = clients.everyone("hello")
            break
        except Refused as refused:
            if refused.code != "approval" or time.monotonic() > until:
                log(refused.client, str(refused))
                raise
            if refused.client != waiting:
                log(refused.client, "waits for a person to approve the run")
                waiting = refused.client
            time.sleep(WAIT)
    said = dict[int, Said]()
    for j, value in found.items():
        try:
            said[j] = Said.read(value)
        except FormatError:
            clients.drop(j, "reply")
    _check_hello(clients, said)
    return said


def _check_hello(clients: Clients, said: dict[int, Said]) -> None:
    """Refuse to begin without all clients; one whose words are wrong is left out, where the others are enough."""
    wrong = [name for j, name in enumerate(clients.names) if j in clients.wrong]
    missing = [name for j, name in enumerate(clients.names) if j not in said and name not in wrong]
    if missing:
        raise Short(f"expected all clients at the start, found none of {', '.join(missing)}.")
    if wrong and len(said) >= (clients.patience.least or len(clients.names)):
        raise LeftOut(wrong)
    if wrong:
        raise Refused("reply", wrong[0])
    for j, one in said.items():
        if one.version != __version__:
            raise Refused("version", clients.names[j])


def _facts(terms: RunTerms, said: dict[int, Said], features: int, known: list[Array] | None) -> Facts:
    rows = [one.rows for one in said.values()]
    lacking = None if known is None else groups(known, features)
    total = terms.config.rows if any(n is None for n in rows) else sum(n or 0 for n in rows)
    return Facts(len(said), features, total, lacking)


def _places(clients: Clients, found: Common) -> dict[int, dict[str, Any]]:
    """Return what every client needs to find its columns."""
    same = {"clients": len(clients.names), "width": found.features, "union": found.union}
    return {j: {**same, "number": j, "columns": index} for j, index in found.columns.items()}


def _prepared(
    terms: RunTerms, clients: Clients, place: dict[int, Any], width: int, known: dict[str, Array]
) -> tuple[Preparation, Any]:
    """Return the steps before the run with what they have learned: now, or before the run was interrupted."""
    if known:
        return Preparation.from_arrays(known), []
    return questions.prepare(terms, clients, place, width)


def _settle(clients: Clients, place: dict[int, Any], facts: Facts, dtype: str, known: dict[str, Array]) -> None:
    """Tell every client its number and its columns, and what else the method is built from."""
    same = {
        "features": facts.features,
        "rows": facts.rows,
        "groups": None if facts.groups is None else np.array(facts.groups),
        "dtype": dtype,
        "known": known,
    }
    if len(clients.ask("settle", {j: {**own, **same} for j, own in place.items()})) < len(place):
        raise Short("expected all clients at the start, found fewer; the run can be resumed.")


def _names(clients: Clients, found: Common) -> list[str] | None:
    """Return the names of the features, which clients say once they have agreed to the run."""
    names: list[str | None] = [None] * found.features
    for j, said in clients.everyone("names").items():
        if said is None:
            return None
        index = found.columns[j] if found.union else np.arange(found.features)
        if len(said) != len(index):
            clients.drop(j, "reply")
            continue
        for i, name in zip(index.tolist(), said, strict=True):
            names[i] = names[i] or name
    return [name or f"feature{i}" for i, name in enumerate(names)]


def _folder(out: Path, job: Job, said: dict[int, Said]) -> RunFolder:
    folder = RunFolder(out)
    if folder.manifest_file.exists():
        return folder
    total = record(job.method.traits.allowance.total()) if job.private else None
    lines = [Input(name, "", said[j].features, None, said[j].rows) for j, name in enumerate(job.names)]
    keys = {name: Party.of(name, key) for name, key in keys_of(job, folder).items()}  # signed as it is received
    exchanged = all(one.keys for one in said.values())
    masks = in_words(job.plan, len(said), keys=exchanged) if job.config.secure else None
    return RunFolder.create(out, job.config, lines, privacy=total, keys=keys or None, masks=masks)


class _Reading:
    """Check what clients say at the end, and make it what a client of this machine would have said."""

    def __init__(self, names: list[str], features: int, method: Method, *, silent: bool) -> None:
        self.names, self.features, self.method = names, features, method
        self.kind, self.silent = kinds.KINDS[method.traits.kind], silent

    def __call__(self, client: int, found: Any) -> Finding | None:
        """Return the finding; with noise or masks there is none, and otherwise there is one."""
        if found is None and self.silent:
            return None
        match found:
            case {"rows": int(rows), "tally": tally, "own": own, "summary": Message() | None as summary, **rest}:
                whole = self._adds_up(tally) and (own is None or self._adds_up(own))
                if not rest and not self.silent and rows >= 0 and whole and self._describes(summary):
                    return Finding(self.names[client], rows, tally, own, summary)
        raise FormatError("expected what a client finds.")

    def _adds_up(self, tally: Any) -> bool:
        """Whether these are the sums of which errors of this kind of data are made."""
        if not _few(tally):
            return False
        try:
            self.kind.score(tally)
        except (TypeError, ValueError, ArithmeticError):  # other sums, or fewer
            return False
        return True

    def _describes(self, summary: Message | None) -> bool:
        """Whether passports can be made of this: r parts of its own, and how the k shared ones are used, all >= 0."""
        if summary is None:
            return True
        k, r = self.method.rank, len(np.atleast_1d(summary.arrays.get("factor", 0)))
        try:
            schema: dict[str, tuple[int, ...]] = {"factor": (r, self.features), "gram": (r, r), "code_gram": (k, k)}
            check_message(summary, schema, client=0, t=0)
        except ClientError:
            return False
        arrays = summary.arrays.values()
        return r > 0 and all(
            a.dtype.kind == "f" and 0 <= a.min(initial=0) <= a.max(initial=0) <= SQUARED for a in arrays
        )


def _few(numbers: Array) -> bool:
    return (
        isinstance(numbers, np.ndarray)
        and numbers.dtype.kind in "fiu"
        and numbers.ndim == 1
        and len(numbers) <= 16
        and bool(np.isfinite(numbers).all())
    )


def outcome(error: Exception | None) -> dict[str, Any]:
    """Return how a job ended, for whoever submitted it.

    It is done, short (to be resumed when clients are back), fewer (to begin anew without some), unfit (to go on without
    some that came late), refused, or failed.
    """
    if error is None:
        return {"state": "done", "text": ""}
    if isinstance(error, LeftOut):
        state = "unfit" if isinstance(error, Unfit) else "fewer"
        return {"state": state, "text": str(error), "clients": error.clients}
    if isinstance(error, Refused):
        return {"state": "refused", "text": str(error)}
    if isinstance(error, ForgedShareError):
        return {"state": "short", "text": f"{error} {FORGED}", "tries": TRIES}
    state = "short" if isinstance(error, Short | ThresholdError) else "failed"
    return {"state": state, "text": str(error) if isinstance(error, CofactorError) else type(error).__name__}
