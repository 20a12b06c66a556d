"""The one pipeline over files: read, prepare, run, judge, write. Every process walks the same way, one or many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cofactor import kinds
from cofactor.assurance.ledger import MANY, TOGETHER
from cofactor.assurance.spending import record
from cofactor.assurance.writing import Party
from cofactor.engines.contract import Callback, Engine
from cofactor.engines.loop import run
from cofactor.engines.outcome import Run
from cofactor.engines.secure import Secure
from cofactor.engines.totals import totals
from cofactor.jobs import new_rows, preparing
from cofactor.jobs.conclude import Conclude, Finding
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.hashing import check_data, hashes
from cofactor.jobs.journal import Journal
from cofactor.jobs.judge import ending, evaluation, is_small, matches, passport_record, passports
from cofactor.jobs.place import Place
from cofactor.jobs.preparing import Prepared
from cofactor.jobs.reading import Inputs, read
from cofactor.kinds.kind import Kind
from cofactor.local.columns import groups
from cofactor.method import Method
from cofactor.methods.build import Facts, ready
from cofactor.plan import Plan
from cofactor.privacy.signing import Key
from cofactor.records import Input
from cofactor.select.markers import MARKED, SCORES, Regressed, table, to_tsv
from cofactor.types import Array, ClientError, CofactorError


@dataclass(frozen=True)
class Job:
    """A run that is ready: what will run, over which clients, and where.

    ``names`` are those of all clients; ``rounds`` the most it takes, None for a stream. ``asks`` says whether clients
    answer questions besides those of the method, which ``asker`` may return another engine for; ``start`` is a factor
    to begin at, ``foreseen`` what must be known of its noise.
    """

    config: Config
    method: Method
    plan: Plan
    inputs: Inputs
    names: list[str]
    place: Place
    rounds: int | None
    prepared: Prepared = field(default_factory=Prepared)
    asks: bool = False
    start: Array | None = None
    asker: Callable[[Regressed, int], Engine | None] | None = None
    foreseen: str = ""

    @property
    def kind(self) -> Kind:
        """What the data are."""
        return kinds.KINDS[self.method.traits.kind]

    @property
    def private(self) -> bool:
        """Whether only releases may look like releases."""
        return self.method.traits.allowance is not None


MOST = 100
"""Markers of a component that a run folder lists."""
PAUSE = 1.0
"""Seconds of work that may be done again after a stop: writing down every round would cost a tenth of short ones."""
Announce = Callable[[Job], Any]
"""Called once, when all is settled and nothing has left yet."""


def fit(
    config: Config, out: Path, *, callbacks: Sequence[Callback] = (), announce: Announce = lambda job: None
) -> RunFolder:
    """Read the inputs, run the method, judge the result, and write the run folder."""
    place = Place(config.carrier())
    with ExitStack() as held, place.guard("the inputs"):
        job = prepare(config.absolute(), place)
        found = hashes(job.config, job.inputs, place)
        lines = place.together("the clients", describe(job, {} if job.config.apart else found))
        place.alone("the run folder", lambda: held.enter_context(RunFolder(out).held()))
        place.alone("the run folder", lambda: RunFolder.free(out))
        keys = keys_of(job, RunFolder(out))
        parties = dict(place.together("the keys", [(name, Party.of(name, key)) for name, key in keys.items()]))
        if job.config.apart:  # rows and hashes are the clients' own
            for line in describe(job, found):
                RunFolder(out).client(line.client).write_json("input.json", {"rows": line.rows, "sha256": line.sha256})
        folder = place.alone("the run folder", lambda: _create(out, job, lines, parties))
        announce(job)
        try:
            return carry(job, folder, callbacks)
        except (CofactorError, OSError):
            if place.count == 1:
                folder.withdraw()
            raise


def resume(out: Path, *, callbacks: Sequence[Callback] = (), announce: Announce = lambda job: None) -> RunFolder:
    """Go on after the last round that the folder's checkpoint holds; a finished run stays as it is."""
    folder = RunFolder.open(out)
    config = folder.config()
    if folder.finished:
        if config.epsilon is not None:
            folder.verify().require(out)
        return folder
    place = Place(config.carrier())
    with ExitStack() as held, place.guard("the inputs"):
        place.alone("the run folder", lambda: held.enter_context(folder.held()))
        if place.alone("the run folder", lambda: folder.finished):  # by whoever held it
            return folder
        job = prepare(config, place, folder.preparation())
        check_data(folder, hashes(job.config, job.inputs, place))
        announce(job)
        return carry(job, folder, callbacks)


def prepare(config: Config, place: Place, known: Mapping[str, Array] | None = None) -> Job:
    """Read and prepare the clients of this process, build the method for those of all, and refuse what cannot be run.

    ``known`` is what the steps of a preparation have learned in a run that is resumed.
    """
    config, inputs = read(config, place)
    inputs, prepared = preparing.prepare(config, inputs, place, known or {})
    names = place.together("the clients", inputs.names)
    facts = _facts(config, inputs, place, len(names))
    _check_sizes(config, facts)
    method, plan, rounds, _, foreseen = ready(config.method, config.rank, config.plan, facts, config.method_options)
    if not place.remote:
        first = sum(place.together("the clients", [len(inputs.names)])[: place.here])
        with place.guard("the inputs"):
            told: dict[str, Any] = {"clients": inputs.labels(), "features": inputs.feature_names}
            told["private"] = plan.privacy is not None
            inputs = replace(inputs, data=kinds.check(method.traits.kind, inputs.data, first=first, **told))
    return Job(config, method, plan, inputs, names, place, rounds, prepared, asks=True, foreseen=foreseen)


def _facts(config: Config, inputs: Inputs, place: Place, clients: int) -> Facts:
    """Return what a method may know of the data: with noise or masks no process says how many rows it has."""
    features = int(inputs.data[0].shape[1])
    lacking = None if inputs.known is None else groups(inputs.known, features)
    if config.apart:
        return Facts(clients, features, config.plan.rows, lacking)
    return Facts(clients, features, place.total("the rows", sum(X.shape[0] for X in inputs.data)), lacking)


def _check_sizes(config: Config, facts: Facts) -> None:
    """Refuse a rank or a picture that the data have no room for."""
    features = facts.features or 1
    config.masks(facts.clients)  # refused for too few, before anything is written
    pixels, limit = int(np.prod(config.image_shape or features)), min(facts.rows or features, features)
    if config.rank > limit:
        rows = "" if facts.rows is None else f"the smaller of {facts.rows} rows and "
        raise CofactorError(f"rank: expected at most {limit} ({rows}{features} features), found {config.rank}.")
    if pixels != features:
        raise CofactorError(f"image: expected {features} pixels (the features), found {config.image}.")


def describe(job: Job, found: dict[str, str]) -> list[Input]:
    """Return one line for each client of this process, with its rows and the hash of its file if hashes were found."""
    clients = zip(job.inputs.names, job.inputs.sources, job.inputs.data, strict=True)
    return [
        Input(name, path, int(X.shape[1]), found.get(path), int(X.shape[0]) if found else None)
        for name, path, X in clients
    ]


def keys_of(job: Job, folder: RunFolder) -> dict[str, Key]:
    """Return the keys with which the clients of this process sign what they send in a private run."""
    if not job.private:
        return {}
    many = job.place.here == 0 and len(job.names) > MANY
    return {name: folder.client(name).key() for name in [*job.inputs.names, *([TOGETHER] if many else [])]}


def _create(out: Path, job: Job, lines: list[Input], keys: dict[str, Party]) -> RunFolder:
    total = record(job.method.traits.allowance.total()) if job.private else None
    return RunFolder.create(out, job.config, lines, privacy=total, keys=keys or None)


def _carrier(job: Job) -> Engine:
    """Return the engine, with the clients' own keys where they were exchanged beforehand."""
    if job.config.keys is None:
        return job.place.engine
    from cofactor.privacy.secure_sum.keys import Keys  # needs the extra "secure"

    return Secure(job.place.engine, Keys(job.config.keys, tuple(job.names)))


def carry(job: Job, folder: RunFolder, callbacks: Sequence[Callback]) -> RunFolder:
    """Run the job, and write what came out; the evaluation comes last, and says that the run is over."""
    inputs, config, engine = job.inputs, job.config, _carrier(job)
    alike = job.kind.compares and inputs.known is None
    compares = alike and not job.config.apart and is_small(inputs.data, config.rank, job.place)
    streams = job.plan.stream is not None
    keys, prepared = keys_of(job, folder), job.prepared
    journal = Journal(job.place, folder, job.names, config, job.method, callbacks, streams, keys, prepared)
    if streams:
        journal.begin(0)  # a stream has no checkpoint: it begins anew
    known: Any = [own or [None] * len(inputs.names) for own in (inputs.held, inputs.rows, inputs.scales)]
    work = [
        Conclude(job.kind, job.method, name, folder.client(name), config.seed, job.private, compares, *own)
        for name, *own in zip(inputs.names, *known, [job.plan.secure] * len(inputs.names), strict=True)
    ]
    outcome = run(
        job.method,
        inputs.data,
        job.plan,
        engine=engine,
        start=job.start,
        checkpoint=replace(folder.checkpoint, pause=0.0 if job.place.remote or job.place.count > 1 else PAUSE),
        begun=journal.begin,
        charges=journal if job.private else None,
        watch=journal.sent,
        callbacks=[journal.round],
        work=work,
    )
    scores = _markers(job, outcome, journal)
    ends = journal.end()
    job.place.alone("the result", lambda: _write(job, folder, outcome, ends=ends, scores=scores))
    return folder


def _markers(job: Job, outcome: Run, journal: Journal) -> Array | None:
    """Ask all clients once more, for the sums that markers need; None where there are none, or they may not leave."""
    inputs, t = job.inputs, len(outcome.history)
    apart = job.plan.stream is not None and job.place.count > 1  # the server of such a stream may have no client
    if job.kind.name not in MARKED or job.private or inputs.feature_names is None or apart or not job.asks:
        return None
    m = outcome.factor.shape[1]
    question = Regressed(job.method.refit, outcome.factor, None if inputs.known is None else groups(inputs.known, m))
    engine = _carrier(job) if job.asker is None else job.asker(question, t)
    if engine is None:
        return None
    try:
        secure = job.plan.secure
        sums = totals(question, inputs.plain, m, engine=engine, secure=secure, watch=lambda _, a: journal.sent(t, a))
    except ClientError:
        if job.asker is None:
            raise
        return None  # one of clients elsewhere has gone: the factor is there, and goes without markers
    return question.scores(sums)


def _write(job: Job, folder: RunFolder, outcome: Run, *, ends: Mapping[str, Any], scores: Array | None) -> None:
    """Write what all share: first the end of the ledger, since results without it say that it was taken."""
    folder.write_history(outcome.history)
    folder.seal(ends)
    config, names = job.config, job.inputs.feature_names
    rows, more = job.kind.public(job.method) if job.kind.public else (None, {})
    more |= {**new_rows.public(config), **job.prepared.arrays, **({} if scores is None else {SCORES: scores})}
    if job.inputs.titles is not None:
        more["titles"] = np.array(job.inputs.titles)
    if outcome.clustergram is not None and outcome.silhouette is not None:
        more |= {"silhouette": outcome.silhouette, "clustergram": outcome.clustergram}
    folder.write_factor(outcome.factor, names, image_shape=config.image_shape, rows=rows, more=more)
    best = [] if scores is None else table(scores, outcome.factor, names, top=MOST)
    if best:
        folder.write_text("markers.tsv", to_tsv(best))
    if outcome.arrivals:
        lines = [arrival._asdict() | {"client": job.names[arrival.client]} for arrival in outcome.arrivals]
        folder.write_json("arrivals.json", {"arrivals": lines, "absent": [job.names[j] for j in outcome.absent]})
    if outcome.ledger is not None:
        spent = record(outcome.ledger.spend())
        folder.write_json("privacy.json", spent)
        result = replace(ending(outcome, job.names), privacy=spent, remark=outcome.remark or job.foreseen or None)
    else:
        findings = outcome.findings
        if job.config.apart:
            findings = [one for sums in findings if (one := Finding.of_all(sums, job.kind)) is not None]
        found = passports(findings, outcome, names=names, seed=config.seed)
        if found:
            folder.write_json("passports.json", [passport_record(p, best) for p in found])
        told: Any = {"match": matches(found, findings), "names": job.names, "features": names}
        result = evaluation(job.kind, findings, outcome, config, **told)
    folder.write_json("evaluation.json", result)
    if job.private:
        folder.checkpoint.remove()  # it holds states of clients
