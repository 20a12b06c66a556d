"""What is said of cells of which some are missing: features and clients that have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cofactor.data.formats.table import few
from cofactor.kinds.kind import Kind
from cofactor.kinds.numbers import GAPPED
from cofactor.types import Array

SHOWN = 5
"""So many are named."""


def silent(kind: Kind, tallies: Sequence[Array]) -> list[int]:
    """Return which clients observed no cell, by their tallies; of other kinds of data none are asked."""
    return [j for j, (*_, cells) in enumerate(tallies) if cells == 0] if kind is GAPPED else []


def remarks(
    columns: Sequence[int],
    features: Sequence[Any] | None,
    kind: Kind,
    tallies: Sequence[Array],
    clients: Sequence[Any],
) -> list[str]:
    """Say what is known of features (by their columns) that nobody observed, and of clients that observed nothing."""
    lines = []
    if columns:
        those = [str(j) if features is None else str(features[j]) for j in columns]
        known = "nothing is known of them, and the factor has 0 there."
        lines.append(f"features that nobody observed, but for rows of zeros: {few(those, SHOWN)}; {known}")
    if without := [str(clients[j]) for j in silent(kind, tallies)]:
        lines.append(f"clients without an observed cell: {few(without, SHOWN)}; their codes are 0.")
    return lines
