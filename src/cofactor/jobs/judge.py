"""How good a run is, from what its clients said: errors, passports, held-out parts; and a pooled bound on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cofactor import kinds
from cofactor.engines.history import DONE, ENDED
from cofactor.engines.loop import run
from cofactor.engines.outcome import Run
from cofactor.jobs import preparing
from cofactor.jobs.conclude import TOP, Finding
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.hashing import check_data, hashes
from cofactor.jobs.place import Place
from cofactor.jobs.reading import read
from cofactor.kinds.kind import Kind, root
from cofactor.kinds.measure import overall, verdict
from cofactor.kinds.own_fits import own_cells
from cofactor.kinds.passports import LAST_ROUNDS, assemble
from cofactor.kinds.passports import Passport as Found
from cofactor.local import arrays
from cofactor.methods import catalog
from cofactor.plan import Plan, Stop
from cofactor.privacy.errors import PrivacyError
from cofactor.ratings.ranking import means
from cofactor.records import ClientScore, Evaluation, Part, Passport
from cofactor.select.markers import Marker
from cofactor.types import Array, CofactorError, Data, few

SAME = ("exact", "exact-beta")
"""Methods whose pooled run has their own loss and penalties; that of others is the first, least squares."""
POOLED_ROUNDS, POOLED_TOL, POOLED_PATIENCE = 400, 1e-6, 10
FEW = 8
"""Clients that are named one by one."""
BARE = (
    "clients with no more rows than there are components ({k}): {clients}. What such a client sends can be solved for "
    "its rows; take fewer components, larger clients, or secure summation."
)
UNTOLD = "Errors were added up under masks: that of each client is in its own folder, clients/NAME/evaluation.json."
ALIKE = (
    "All ratings are predicted without error, as where they are all the same: from clicks, which are, only "
    "--option alpha=40 (implicit=True in Python) learns."
)
HELD_BACK = (
    " What the others and the biases leave is no larger than the ridge allows: a smaller one (--option ridge=1) may "
    "find more, and ratings that are held out say whether it is true."
)
NO_ERROR = 1e-9
LOCAL_CELLS = 2 * 10**8
"""Clients are compared with their own local fits if these look at no more cells in all; it would double the work."""


def is_small(data: Sequence[Data], rank: int, place: Place) -> bool:
    """Whether comparing clients with their own local fits is worth its time."""
    return place.total("the sizes", sum(own_cells(X.shape[0], X.shape[1], rank) for X in data)) <= LOCAL_CELLS


def ending(outcome: Run, names: Sequence[str]) -> Evaluation:
    """Return how a run ended, and what it says of clients (by their names) and components without an error."""
    return Evaluation(
        rounds=len(outcome.history),
        converged=outcome.ended in DONE,
        ended=ENDED[outcome.ended],
        absent=[names[j] for j in outcome.absent if j not in outcome.undrawn],
        undrawn=[names[j] for j in outcome.undrawn],
        empty=list(outcome.empty),
        unsure=list(outcome.unsure),
    )


def remarks(result: Evaluation) -> list[str]:
    """Say what somebody who reads the errors of a run should know of it."""
    lines = [UNTOLD] if result.error is not None and not result.clients else []
    if not result.converged:
        why = result.ended or "the rounds were used up"
        lines.append(f"Not converged: {why}; more --rounds, or a larger --tol, would end it.")
    if result.absent:
        lines.append(f"Clients that never answered, or were given up: {', '.join(result.absent)}.")
    if result.undrawn:
        lines.append(
            f"Clients that were drawn for none of the {result.rounds} rounds: {', '.join(result.undrawn)}. The factor "
            "knows nothing of them; more --rounds, or a larger --participation, would reach them."
        )
    alike = bool(result.parts and result.parts[0].rmse is not None and result.parts[0].rmse < NO_ERROR)
    if alike:
        lines.append(ALIKE)
    if result.empty:
        held = HELD_BACK if result.parts and not alike else ""
        lines.append(f"Nothing is made of components {', '.join(map(str, result.empty))}.{held}")
    if result.unsure:
        lines.append(f"Components that another start may not find: {', '.join(map(str, result.unsure))}.")
    return [*lines, *result.lacking, *(f"Privacy: {text}" for text in result.shows)]


def shows(kind: Kind, findings: Sequence[Finding], outcome: Run, *, secure: bool) -> list[str]:
    """Say what shows rows as they are: components of one row, and messages of clients that have hardly any."""
    k = len(outcome.factor)
    texts = [kind.alone(outcome.single)] if outcome.single else []
    small = [] if secure else [found.client for found in findings if found.rows <= k]
    return [*texts, BARE.format(k=k, clients=few(small, FEW))] if small else texts


def evaluation(
    kind: Kind,
    findings: Sequence[Finding],
    outcome: Run,
    config: Config,
    *,
    match: list[list[float | None]] | None,
    names: Sequence[str],
    features: Sequence[str] | None = None,
) -> Evaluation:
    """Return the errors of every client and of all rows, and what else the findings tell.

    Under masks there is one finding, that of all clients together.
    """
    said: Any = [(found.tally, found.client, found.own) for found in findings]
    tallies, who, own = zip(*said) if said else ((), (), ())
    found = verdict(kind, outcome, tallies, who, features=features, own=own)
    clients = [
        ClientScore(line.client, line.rows, *score, alone and alone.error, **_own_shares(line.apart))
        for line, score, alone in zip(findings, found.each, found.alone)
    ]
    return replace(
        ending(outcome, names),
        error=found.whole.error if findings else None,
        clients=[] if config.secure else clients,
        match=match,
        parts=_parts(kind, findings, config),
        shows=shows(kind, findings, outcome, secure=config.secure),
        sizes=[] if outcome.sizes is None else np.asarray(outcome.sizes, float).tolist(),
        lacking=[text[0].upper() + text[1:] for text in found.lacks],
    )


def _own_shares(apart: Array | None) -> dict[str, Any]:
    """Return how much of a client's model is its own: of all of it, and of each component."""
    if apart is None:
        return {}
    own, whole = apart[1].astype(float), apart.sum(axis=0, dtype=float)
    each = np.divide(own, whole, out=np.zeros_like(own), where=whole > 0)
    return {"own_share": float(own.sum() / max(whole.sum(), 1e-300)), "own_shares": each.tolist()}


def _parts(kind: Kind, findings: Sequence[Finding], config: Config) -> list[Part]:
    """Training and held-out ratings."""
    if kind.name != "ratings" or not findings:
        return []
    _, _, squares, count, ratings = np.sum([found.tally for found in findings], axis=0)
    parts = [Part("training", int(ratings), root(squares, count) if count else None)]
    if findings[0].held is not None:
        held = [found.held for found in findings if found.held is not None]
        squares, count, ratings, *sums = np.sum(held, axis=0)
        name = "held out at random" if config.holdout == "random" else f"held out by {config.holdout}"
        ranking = {f"{name}@{TOP}": value for name, value in means(np.array(sums)).items()}
        shown = [found.listed for found in findings if found.listed is not None]
        if len(shown) == len(findings):
            ranking[f"coverage@{TOP}"] = float(np.any(shown, axis=0).mean())
        parts.append(Part(name, int(ratings), root(squares, count) if count else None, ranking))
    return parts


def passports(findings: Sequence[Finding], outcome: Run, *, names: list[str] | None, seed: int) -> list[Found]:
    """Return a passport for every component, from the summaries of the clients; none where there are none.

    Of a run that was resumed in its last rounds, drift is not known: this process has not seen their factors.
    """
    messages = [found.summary for found in findings if found.summary is not None]
    if not messages or len(messages) < len(findings):
        return []
    seen = outcome.recent if len(outcome.recent) >= min(len(outcome.history), LAST_ROUNDS) else None
    return assemble(messages, outcome.factor, history_factors=seen, feature_names=names, seed=seed)


def matches(found: Sequence[Found], findings: Sequence[Finding]) -> list[list[float | None]] | None:
    """Cosine of every shared component with the client's own that it matches; None where a client has none."""
    if not found:
        return None
    there = [finding.own is not None for finding in findings]
    return [[cosine if known else None for cosine, known in zip(p.cosines, there, strict=True)] for p in found]


def passport_record(p: Found, markers: Sequence[Marker] = ()) -> Passport:
    """Return a passport as a run folder holds it, with the best of the markers of all components that are its own."""
    features: list[Any] = [[f"feature{n}" if isinstance(n, int) else str(n), weight] for n, weight in p.features]
    own = [[str(m.feature), m.score] for m in markers if m.component == p.component][: len(features) or None]
    shares: list[float | None] = list(p.client_shares)
    return Passport(p.component, p.clients, p.n_clients, p.share, p.stability, p.drift, features, own, shares)


def add_pooled(folder: RunFolder) -> Evaluation:
    """Add the error of a pooled run of the same rank to a run's evaluation: only where all inputs are in one place.

    The bound is the best of three runs on the stacked rows, each client's codes refitted; of a run with another loss or
    with penalties the same ones, since least squares would only say what these cost.
    """
    config, result = folder.config(), folder.evaluation()
    if config.privacy:
        raise PrivacyError(
            "a pooled bound is refused: it reads the rows of all clients without noise, and this run is private."
        )
    if config.kind == "ratings":
        raise CofactorError("exact-als is the pooled answer already; a pooled bound is there for non-negative numbers.")
    config = replace(config, method="exact", options={}) if config.kind == "blocks" else config
    _, inputs = read(config, Place())
    check_data(folder, hashes(config, inputs, Place()))
    inputs, _ = preparing.prepare(config, inputs, Place(), folder.preparation())
    kind = kinds.named(config.kind)
    if not kind.compares or inputs.known is not None:
        raise CofactorError(
            "a pooled bound is there for non-negative numbers only, with the same features at every client."
        )
    data = kinds.check(kind, inputs.data)
    name, options = (config.method, config.options) if config.method in SAME else (SAME[0], {})
    method = catalog.make(name, config.rank, **{**options, **catalog.find(name).started_options})
    stacked = arrays.stack(data)
    plans = [Plan(POOLED_ROUNDS, stop=Stop(POOLED_TOL, POOLED_PATIENCE), seed=s) for s in range(3)]
    H = min((run(method, [stacked], plan) for plan in plans), key=lambda found: found.history[-1].loss).factor
    best = [kind.tally(method, X, method.refit(X, H), H) for X in data]
    clients = [replace(line, pooled_error=kind.score(tally).error) for line, tally in zip(result.clients, best)]
    result = replace(result, clients=clients, pooled_error=overall(kind, best).error)
    folder.write_json("evaluation.json", result)
    return result
