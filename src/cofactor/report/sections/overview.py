"""Summary and settings: what ran."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

from cofactor.report import words
from cofactor.report.charts import finite
from cofactor.report.folder import Folder
from cofactor.report.sections.traffic import guarantee, verdict


class Card(NamedTuple):
    """One key figure."""

    name: str
    value: str
    note: str


def summary(folder: Folder) -> dict[str, Any]:
    """What ran, in one sentence and a few key figures."""
    m, clients = folder.manifest, folder.evaluation.clients
    k, features = folder.factor.H.shape
    rows = f"{words.counted(sum(c.rows for c in clients), 'row')} of " if clients else ""
    held = f"{rows}{words.counted(features, 'feature')}"
    asked = "" if k == m.rank else f" ({m.rank} were asked for)"
    found = f"one shared factor of {words.counted(k, 'component')}{asked}"
    rounds = words.counted(len(folder.history), "round")
    sentence = f"{words.counted(len(folder.client_names), 'client')} with {held} learned {found} in {rounds}."
    if verdict(folder).same is not False:
        sentence += " Raw rows and codes never leave a client."
    return {"sentence": sentence, "cards": _cards(folder)}


def _cards(folder: Folder) -> list[Card]:
    history = folder.history
    up, down = sum(r.bytes_up for r in history), sum(r.bytes_down for r in history)
    rows = [c.rows for c in folder.evaluation.clients]
    held = f"{min(rows):,} to {max(rows):,} rows each" if rows else "rows not released"
    error = "each client has its own" if folder.withheld else "of all rows, codes refitted"
    cards = [
        Card("Relative error", "withheld" if folder.withheld else words.fixed(folder.evaluation.error), error),
        Card("Clients", f"{len(folder.client_names):,}", held),
        Card("Rounds", f"{len(history):,}", f"{words.duration(sum(r.seconds for r in history))} in all"),
        Card("Sent", words.size(up + down), f"{words.size(up)} up, {words.size(down)} down"),
    ]
    gap, (k, m) = gap_to_pooled(folder), folder.factor.H.shape
    against = Card("Against pooling", words.percent(gap, sign=True), "error of the median client")
    cards.insert(1, Card("Rank", f"{k:,}", f"of {words.counted(m, 'feature')}") if gap is None else against)
    claim = guarantee(folder)
    note = f"δ {words.number(claim.delta)}, per {claim.unit}" if claim else "no (ε, δ) guarantee"
    return [*cards, Card("Differential privacy", f"ε {words.number(claim.epsilon)}" if claim else "none", note)]


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
    """Yield nested settings as dotted names."""
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict) and item and len(prefix) < 200:
            yield from _flat(item, f"{name}.")
        else:
            yield name, item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
