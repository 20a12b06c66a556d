"""Who uses what: shares of the components at every client, and what of its model is a client's own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cofactor.report import words
from cofactor.report.contents import Folder
from cofactor.report.sections.quality import CELLS_IN_TABLE, ROWS_IN_PLOT
from cofactor.types import Array

TONES = 7
"""Components that have a colour of their own: the largest; the others are one part of a bar."""
NAMED = 6.0
"""Percent from which on a part of a bar has its name in it."""


class Bit(NamedTuple):
    """One part of a bar: its tone, its width in percent, its name, and what a pointer is told."""

    tone: int
    width: float
    name: str
    title: str


class Bar(NamedTuple):
    """One client."""

    client: str
    parts: list[Bit]


class Key(NamedTuple):
    """One line of a legend."""

    tone: int
    name: str


def usage(folder: Folder) -> dict[str, Any] | None:
    """Return one bar for each client, of the components' shares in what the model says of its rows."""
    shares = _shares(folder)
    if shares is None:
        return None
    largest = np.argsort(-np.array([p.share for p in folder.passports or []]), kind="stable")[:TONES]
    order, rest = np.sort(largest), np.setdiff1d(np.arange(len(shares)), largest)
    bars = []
    for name, column in zip(folder.client_names, shares.T, strict=True):
        parts = [_bit(tone, column[i], str(i), f"component {i}") for tone, i in enumerate(order)]
        others = [_bit(TONES, column[rest].sum(), "others", "other components")] if rest.size else []
        bars.append(Bar(name, parts + others))
    keys = [Key(tone, _called(folder, int(i))) for tone, i in enumerate(order)]
    keys += [Key(TONES, words.counted(len(rest), "other component"))] if rest.size else []
    table = [[words.percent(float(v)) for v in row] for row in shares] if shares.size <= CELLS_IN_TABLE else None
    return {
        "bars": bars[:ROWS_IN_PLOT],
        "more": bars[ROWS_IN_PLOT:],
        "keys": keys,
        "names": folder.client_names,
        "table": table,
        "text": f"Shares of {len(shares)} components at {words.counted(len(bars), 'client')}.",
    }


def _shares(folder: Folder) -> Array | None:
    """Shares of the components (k) at every client (c), where passports have them."""
    found = [p.client_shares for p in sorted(folder.passports or [], key=lambda p: p.component)]
    c = len(folder.client_names)
    if len(found) != len(folder.factor.H) or c < 1 or any(len(row) != c for row in found):
        return None
    shares = np.array([[np.nan if v is None else v for v in row] for row in found], dtype=float)
    return np.clip(shares, 0, 1) if np.isfinite(shares).all() else None


def _bit(tone: int, share: float, name: str, what: str) -> Bit:
    width = 100 * float(share)
    return Bit(tone, round(width, 2), name if width >= NAMED else "", f"{what}: {words.percent(float(share))}")


def _called(folder: Folder, component: int) -> str:
    """Name a component by its number, and by what marks it: its best marker, or its largest feature."""
    factor = folder.factor
    if factor.image_shape is not None:
        return f"component {component}"
    row = factor.H if factor.scores is None else factor.scores
    return f"{component}: {factor.names[int(np.argmax(row[component]))]}"


def apart(folder: Folder) -> dict[str, Any] | None:
    """Return how much of every client's model is shared and how much its own, as a whole and by component."""
    clients = folder.evaluation.clients
    if not has_own(folder):
        return None
    whole = [float(c.own_share or 0) for c in clients]
    bars = [
        Bar(c.client, [_bit(0, 1 - v, words.percent(1 - v), "shared"), _bit(1, v, words.percent(v), "its own")])
        for c, v in zip(clients, whole, strict=True)
    ]
    table = np.array([c.own_shares for c in clients], dtype=float).T
    small = table.size <= CELLS_IN_TABLE
    rows = [[(words.percent(float(v)), round(100 * float(np.clip(v, 0, 1)))) for v in row] for row in table]
    called = [_called(folder, i) for i in range(len(table))]
    return {
        "bars": bars[:ROWS_IN_PLOT],
        "more": bars[ROWS_IN_PLOT:],
        "keys": [Key(0, "shared by all"), Key(1, "the client's own")],
        "names": folder.client_names,
        "rows": list(zip(called, rows, strict=True)) if small else None,
        "range": (words.percent(min(whole)), words.percent(max(whole))),
        "text": f"Shared and own part of the model of {words.counted(len(bars), 'client')}.",
    }


def has_own(folder: Folder) -> bool:
    """Whether clients of the run have a part of their own, and have said how large it is."""
    k, clients = len(folder.factor.H), folder.evaluation.clients
    return bool(clients) and all(c.own_share is not None and len(c.own_shares) == k for c in clients)
