"""What was found: the components, and the rank they were asked for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cofactor.records import Passport, RankScan
from cofactor.report import pictures, words
from cofactor.report.charts import Chart, Series, chart, finite
from cofactor.report.contents import Folder
from cofactor.report.meanings import kind_of, meaning, why_alone
from cofactor.report.sections.tiles import Tile, tiles
from cofactor.types import Array

TOP, OPEN, MARKERS = 8, 12, 12


class Feature(NamedTuple):
    """A feature of a component: its weight as text and in percent of the largest, and whether it is below 0."""

    name: str
    weight: str
    share: float
    below: bool = False


class Component(NamedTuple):
    """One card: a picture or the top features, and the facts of its passport."""

    number: int
    picture: str | None
    features: list[Feature]
    facts: list[tuple[str, str]]


def components(folder: Folder) -> dict[str, Any]:
    """Every component of the shared factor."""
    passports = {p.component: p for p in folder.passports or []}
    bits, centres = kind_of(folder) == "boolean", kind_of(folder) == "clusters"
    cards = [_card(i, row, folder, passports.get(i)) for i, row in enumerate(folder.factor.H)]
    if bits:
        found = dict(enumerate(tiles(folder) or []))
        cards = [_set(card, row, found.get(card.number)) for card, row in zip(cards, folder.factor.H, strict=True)]
    if centres and folder.evaluation.sizes:
        cards = [_sized(card, folder.evaluation.sizes) for card in cards]
    return {
        "cards": cards[:OPEN],
        "more": cards[OPEN:],
        "shape": folder.factor.image_shape,
        "passports": folder.passports is not None,
        "features": words.counted(folder.factor.H.shape[1], meaning(folder).feature),
        "noun": meaning(folder).feature,
        "bits": bits,
        "called": "Centre" if centres else "Component",
        "signed": bool((folder.factor.H < 0).any()),
        "sized": centres and bool(folder.evaluation.sizes),
        "tiles": bits and any(name == "support" for card in cards for name, _ in card.facts),
        "why": why_alone(folder),
    }


def _card(index: int, row: Array, folder: Folder, passport: Passport | None) -> Component:
    shape, order = folder.factor.image_shape, folder.factor.image_order
    picture = pictures.component(row, shape, order=order) if shape else None
    pairs = [(str(name), float(weight)) for name, weight in passport.top_features] if passport else []
    features = [] if shape else _features(pairs or top_features(row, folder.factor.names))
    return Component(index, picture, features, _facts(passport) if passport else [])


def _set(card: Component, row: Array, tile: Tile | None) -> Component:
    """A component of bits is a set of features: how many there are, the first of them, who has them, and how surely."""
    facts = [("size", words.counted(int(np.count_nonzero(row)), "feature"))]
    if tile is not None:
        share = f" ({words.percent(tile.support / tile.rows)})" if tile.rows else ""
        facts += [("support", words.counted(tile.support, "row") + share)]
        facts += [("precision", words.percent(tile.precision) if tile.support else "unused")]
    features = [Feature(f.name, "", 0.0) for f in card.features]
    return card._replace(features=features, facts=[*facts, *card.facts])


def _sized(card: Component, sizes: list[float]) -> Component:
    """A centre is the mean of so many rows."""
    rows, share = round(sizes[card.number]), sizes[card.number] / max(sum(sizes), 1.0)
    return card._replace(facts=[("size", f"{words.counted(rows, 'row')} ({words.percent(share)})"), *card.facts])


def top_features(row: Array, names: list[str]) -> list[tuple[str, float]]:
    """Return the features with the largest weights, those of weight 0 left out."""
    order = np.argsort(-np.abs(row), kind="stable")[:TOP]
    return [(names[i], float(row[i])) for i in order if row[i] != 0]


def _features(pairs: list[tuple[str, float]], top: int = TOP) -> list[Feature]:
    largest = max((abs(w) for w in finite([w for _, w in pairs])), default=0.0) or 1.0
    show = words.number if largest < 0.1 else words.fixed
    return [Feature(n, show(w, 2), 100 * abs(w) / largest if finite([w]) else 0.0, w < 0) for n, w in pairs[:top]]


def _facts(passport: Passport) -> list[tuple[str, str]]:
    facts = [
        ("found at", f"{passport.clients_found} of {words.counted(passport.n_clients, 'client')}"),
        ("share", words.percent(passport.share)),
        ("stability", words.fixed(passport.stability, 2)),
        ("moved in the last rounds", words.number(passport.drift, 3)),
    ]
    return [(name, text) for name, text in facts if text != words.MISSING]


class Marked(NamedTuple):
    """One row of the table of markers: a component, what it explains, and its features with their share of the best."""

    number: int
    share: str
    best: str
    features: list[Feature]


def markers(folder: Folder) -> dict[str, Any] | None:
    """The features that go with each component more than with the others."""
    scores, names = folder.factor.scores, folder.factor.names
    if scores is None:
        return None
    shares = {p.component: p.share for p in folder.passports or []}
    rows = [
        Marked(i, words.percent(shares.get(i)), words.fixed(float(row.max()), 2), _features(_best(row, names), MARKERS))
        for i, row in enumerate(scores)
    ]
    return {"rows": rows, "shares": bool(shares), "noun": meaning(folder).feature}


def _best(row: Array, names: list[str]) -> list[tuple[str, float]]:
    """Return the features with the largest scores above 0."""
    return [(names[i], float(row[i])) for i in np.argsort(-row, kind="stable")[:MARKERS] if row[i] > 0]


def rank(folder: Folder) -> dict[str, Any] | None:
    """Errors and stability by rank, with the suggestion."""
    scan = folder.rank
    if scan is None:
        return None
    return {"errors": _errors(scan), "stability": _stability(scan), "scan": scan, "used": folder.manifest.rank}


def _errors(scan: RankScan) -> Chart | None:
    series = [
        Series("held-out error, ± one standard deviation", scan.heldout_mean, "a", spread=scan.heldout_std),
        Series("training error", scan.training_error, "b"),
    ]
    text = f"Held-out and training error for ranks {min(scan.ranks)} to {max(scan.ranks)}; {scan.suggestion} suggested."
    return chart(text, scan.ranks, series, titles=("rank", "error"), rule=scan.suggestion)


def _stability(scan: RankScan) -> Chart | None:
    series = [Series("over seeds", scan.seed_stability, "a"), Series("over clients", scan.client_stability, "b")]
    text = f"Stability over seeds and over clients for ranks {min(scan.ranks)} to {max(scan.ranks)}."
    return chart(text, scan.ranks, series, titles=("rank", "stability"), rule=scan.suggestion)
