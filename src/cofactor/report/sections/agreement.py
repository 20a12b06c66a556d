"""What many starts agree on: how far each component stands apart, and all of them side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

from cofactor.report import pictures, words
from cofactor.report.contents import Folder

FAR = 1.4142
"""Distance of components that have nothing in common."""
WEAK = 0.5


class Line(NamedTuple):
    """One component: its silhouette, and its width in a bar."""

    number: int
    value: str
    width: float
    weak: bool


def agreement(folder: Folder) -> dict[str, Any] | None:
    """Return the clustergram, dark where components are near, and the silhouette of each cluster."""
    found = folder.factor
    if found.clustergram is None or found.silhouette is None:
        return None
    rows = [
        Line(i, words.fixed(float(s), 2), 100 * min(max(0.0, float(s)), 1.0), bool(s < WEAK))
        for i, s in enumerate(found.silhouette)
    ]
    near = 1 - found.clustergram / FAR
    return {
        "picture": pictures.data_uri(near**2, pictures.TEAL),
        "rows": rows,
        "weak": [r.number for r in rows if r.weak],
    }
