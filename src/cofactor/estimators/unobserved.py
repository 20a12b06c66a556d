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


def named(columns: Sequence[int], features: Sequence[Any] | None) -> list[str]:
    """Name features by their columns."""
    return [str(j) if features is None else str(features[j]) for j in columns]


def remarks(features: Sequence[str], clients: Sequence[str]) -> list[str]:
    """Say what is known of features that nobody observed, and of clients that observed nothing."""
    lines = []
    if features:
        known = "nothing is known of them, and the factor has 0 there."
        lines.append(f"features that nobody observed, but for rows of zeros: {few(features, SHOWN)}; {known}")
    if clients:
        lines.append(f"clients without an observed cell: {few(clients, SHOWN)}; their codes are 0.")
    return lines
