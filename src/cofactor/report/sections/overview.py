"""Summary and settings: what ran."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

from cofactor.report import words
from cofactor.report.charts import finite
from cofactor.report.contents import Folder
from cofactor.report.meanings import meaning
from cofactor.report.sections.traffic import guarantee, stays


class Card(NamedTuple):
    """One key figure."""

    name: str
    value: str
    note: str


def summary(folder: Folder) -> dict[str, Any]:
    """What ran, in one sentence and a few key figures."""
    m, clients, nouns = folder.manifest, folder.evaluation.clients, meaning(folder)
    k, features = folder.factor.H.shape
    joined = "of" if nouns.row == "row" else "and"
    rows = f"{words.counted(sum(c.rows for c in clients), nouns.row)} {joined} " if clients else ""
    held = f"{rows}{words.counted(features, nouns.feature)}"
    asked = "" if k == m.rank else f" ({m.rank} were asked for)"
    found = f"one shared factor of {words.counted(k, 'component')}{asked}"
    rounds = words.counted(len(folder.history), "round")
    sentence = f"{words.counted(len(folder.client_names), 'client')} with {held} learned {found} in {rounds}."
    if stays(folder):
        sentence += " Raw rows and codes never leave a client."
    return {
        "sentence": sentence,
        "cards": _cards(folder),
        "shows": folder.evaluation.shows,
        "remark": folder.evaluation.remark,
    }


def _cards(folder: Folder) -> list[Card]:
    history = folder.history
    up, down = sum(r.bytes_up for r in history), sum(r.bytes_down for r in history)
    cards = [
        *_quality(folder),
        Card("Clients", f"{len(folder.client_names):,}", _held([c.rows for c in folder.evaluation.clients], folder)),
        Card("Rounds", f"{len(history):,}", f"{words.duration(sum(r.seconds for r in history))} in all"),
        Card("Sent", words.size(up + down), f"{words.size(up)} up, {words.size(down)} down"),
    ]
    claim = guarantee(folder)
    note = f"δ {words.number(claim.delta)}, per {claim.unit}" if claim else "no (ε, δ) guarantee"
    return [*cards, Card("Differential privacy", f"ε {words.number(claim.epsilon)}" if claim else "none", note)]


def _quality(folder: Folder) -> list[Card]:
    """How good the factor is, in two figures: of ratings on those held out, and of other data next to pooling."""
    result, (k, m) = folder.evaluation, folder.factor.H.shape
    rank = Card("Rank", f"{k:,}", f"of {words.counted(m, meaning(folder).feature)}")
    if folder.withheld:
        return [Card("Relative error", "withheld", "each client has its own"), rank]
    judged = result.parts[-1] if result.parts else None
    if judged is not None:
        held = f"{words.counted(judged.ratings, 'rating')}, {judged.part}"
        measures = ((name, value) for name, value in judged.ranking.items() if name.startswith("ndcg"))
        ranked = [Card(words.measure(name), words.fixed(value), held) for name, value in measures]
        rmse = [] if judged.rmse is None else [Card("RMSE", words.fixed(judged.rmse), held)]
        if rmse or ranked:
            return [*rmse, *ranked, rank][:2]
    gap = gap_to_pooled(folder)
    against = Card("Against pooling", words.percent(gap, sign=True), "error of the median client")
    error = Card("Relative error", words.fixed(result.error), f"of all {meaning(folder).row}s, codes refitted")
    return [error, rank if gap is None else against]


def _held(rows: list[int], folder: Folder) -> str:
    """Say how many rows a client has."""
    noun = meaning(folder).row
    if not rows:
        return f"{noun}s not released"
    low, high = min(rows), max(rows)
    return f"{words.counted(low, noun)} each" if low == high else f"{low:,} to {high:,} {noun}s each"


def gap_to_pooled(folder: Folder) -> float | None:
    """Return the median over clients of ``error / pooled error - 1``."""
    gaps = [c.error / c.pooled_error - 1 for c in folder.evaluation.clients if c.pooled_error]
    known = finite(gaps)
    return statistics.median(known) if known else None


def settings(folder: Folder) -> dict[str, Any]:
    """Everything that reproduces the run."""
    m = folder.manifest
    versions = {"cofactor": m.cofactor} | m.versions
    return {"config": list(_flat(m.config)), "versions": list(_flat(versions)), "inputs": m.inputs}


def _flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested settings as dotted names; what was not set is left out."""
    for key, item in value.items():
        name = f"{prefix}{key}"
        if item is None or item in ("", {}):
            continue
        if isinstance(item, dict) and item and len(prefix) < 200:
            yield from _flat(item, f"{name}.")
        else:
            yield name, item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
