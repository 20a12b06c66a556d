"""How well it went: convergence, errors by client, drift and matches."""

from __future__ import annotations

from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from cofactor.records import ClientScore, Line, Part
from cofactor.report import pictures, words
from cofactor.report.charts import Axis, Chart, Key, Numbers, Series, chart, finite, span
from cofactor.report.contents import Folder
from cofactor.report.meanings import meaning, why_alone

ROWS_IN_PLOT, CELLS_IN_TABLE, LINES_IN_TABLE = 24, 360, 200
KEYS = [
    Key("dots", "a", "shared factor"),
    Key("tick", "b", "pooled fit"),
    Key("ring", "c", "the client's own fit"),
]


def convergence(folder: Folder) -> dict[str, Any]:
    """Loss by round."""
    others, main = split_stages(folder.history)
    losses = [r.loss for r in main]
    known = finite(losses)
    figure = chart(
        f"Loss by round: from {words.number(known[0])} in the first to {words.number(known[-1])} in the last."
        if known
        else "",
        [r.round + 1 for r in main],
        [Series("loss", losses)],
        titles=("round", "loss"),
        log=True,
    )
    return {
        "chart": figure if len(known) > 1 else None,
        "only": known[0] if len(known) == 1 else None,
        "others": [r for r in others if finite([r.loss])],
        "ends": (known[0], known[-1]) if len(known) > 1 and known[0] > 0 else None,
        "drawn": main[0].round,
        "caption": meaning(folder).loss,
        "lines": thin(folder.history),
        "every": -(-len(folder.history) // LINES_IN_TABLE),
        "private": bool(finite([r.epsilon for r in folder.history])),
    }


def split_stages(history: list[Line]) -> tuple[list[Line], list[Line]]:
    """Return the rounds of the longest stage (of equal ones the last), the others before it: losses do not compare."""
    stages = [list(lines) for _, lines in groupby(history, key=lambda line: line.stage)]
    main = max(reversed(stages), key=len)
    return [line for lines in stages if lines is not main for line in lines], main


def thin(history: list[Line]) -> list[Line]:
    """Keep at most ``LINES_IN_TABLE`` rounds, evenly spaced, the last one among them."""
    step = -(-len(history) // LINES_IN_TABLE)
    return history[(len(history) - 1) % step :: step]


class Row(NamedTuple):
    """One client of the dot plot; positions in percent."""

    client: ClientScore
    shared: float | None
    pooled: float | None
    local: float | None


def clients(folder: Folder) -> dict[str, Any]:
    """Errors of each client against the pooled bound and against its own fit."""
    scores = folder.evaluation.clients
    columns: list[Numbers] = [
        [c.error for c in scores],
        [c.pooled_error for c in scores],
        [c.local_error for c in scores],
    ]
    low, high = span([v for column in columns for v in finite(column)] or [0.0, 1.0])
    axis = Axis(low, high)
    few = len(scores) <= ROWS_IN_PLOT
    rows = [Row(c, _at(axis, c.error), _at(axis, c.pooled_error), _at(axis, c.local_error)) for c in scores if few]
    shown = [key for key, column in zip(KEYS, columns) if finite(column)]
    return {
        "rows": rows,
        "ticks": axis.ticks(4),
        "keys": shown,
        "chart": None if few else _ordered(columns),
        "scores": scores,
        "text": f"Relative error of {words.counted(len(scores), 'client')}: {', '.join(k.name for k in shown)}.",
        "compared": [bool(finite(column)) for column in columns[1:]],
        "meaning": meaning(folder),
        "why": why_alone(folder),
        **_parts(folder.evaluation.parts),
    }


def _parts(parts: list[Part]) -> dict[str, Any]:
    """Training and held-out ratings, and the names of the measures that judge their ranking."""
    return {"parts": parts, "measures": list(dict.fromkeys(name for part in parts for name in part.ranking))}


def _at(axis: Axis, value: float | None) -> float | None:
    return axis.at(value) if finite([value]) and value is not None else None


def _ordered(columns: list[Numbers]) -> Chart | None:
    """Draw many clients as dots in the order of their error."""
    order = np.argsort(np.array(columns[0], dtype=float), kind="stable")
    names = ("shared factor", "pooled fit", "own fit")
    series = [Series(n, [c[i] for i in order], t, "dots") for n, c, t in zip(names, columns, "abc") if finite(c)]
    text = f"Relative error of {len(order)} clients in ascending order."
    return chart(text, range(1, len(order) + 1), series, titles=("clients by error", "relative error"))


def drift(folder: Folder) -> dict[str, Any]:
    """How far clients were apart in each round, and how well their own components match the shared ones."""
    values = [r.drift for r in folder.history]
    positive = [v for v in finite(values) if v > 0]
    text = (
        f"Drift by round, between {words.number(min(positive))} and {words.number(max(positive))}." if positive else ""
    )
    figure = chart(
        text, [r.round + 1 for r in folder.history], [Series("drift", values)], titles=("round", "drift"), zero=True
    )
    return {
        "chart": figure if len(positive) > 1 else None,
        "known": finite(values),
        "only": next((r for r in folder.history if finite([r.drift]) and (r.drift or 0) > 0), None),
        "match": _match(folder),
        "why": why_alone(folder),
    }


def _match(folder: Folder) -> dict[str, Any] | None:
    table = folder.evaluation.match
    if table is None:
        return None
    M = np.array([[np.nan if v is None else v for v in row] for row in table], dtype=float)
    M = np.clip(np.where(np.abs(M) < 1.001, M, np.nan), -1, 1)
    known = M[np.isfinite(M)]
    small = M.size <= CELLS_IN_TABLE
    return {
        "names": [c.client for c in folder.evaluation.clients],
        "rows": [[(v if np.isfinite(v) else None, strength(v)) for v in row] for row in M] if small else None,
        "picture": None if small else pictures.data_uri(np.nan_to_num(np.clip(M, 0, 1) ** 2), pictures.TEAL),
        "shape": M.shape,
        "median": float(np.median(known)) if known.size else None,
        "good": float(np.mean(known >= 0.8)) if known.size else None,
        "scale": [(v, strength(v)) for v in (0.0, 0.25, 0.5, 0.75, 1.0)],
        "weakest": _weakest(M),
    }


def strength(cosine: float) -> int:
    """Return how much of the accent colour a cosine gets, in percent; squared, so that good matches stand out."""
    return round(100 * float(np.clip(np.nan_to_num(cosine), 0, 1)) ** 2)


def _weakest(M: np.ndarray) -> list[tuple[int, float]]:
    """Return the three components with the lowest mean cosine."""
    known = [(i, float(np.nanmean(row))) for i, row in enumerate(M) if np.isfinite(row).any()]
    return sorted(known, key=lambda pair: pair[1])[:3]
