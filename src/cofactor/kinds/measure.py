"""How well codes and factor fit: what every client says of its rows in the end, in sums, and what all amounts to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cofactor.kinds.kind import Kind, Score
from cofactor.kinds.numbers import GAPPED
from cofactor.local.brief import ROWS_PER_COMPONENT
from cofactor.types import Array, few

SHOWN = 5
"""So many features, or clients, are named."""


@dataclass(frozen=True)
class Measure:
    """The tally of a client's rows under the final factor."""

    kind: Kind
    method: Any

    def __call__(self, client: Any, factor: Array) -> Array:
        """Return what adds up over clients."""
        return self.kind.tally(self.method, client.data, client.codes, factor)


def overall(kind: Kind, tallies: Sequence[Array]) -> Score:
    """Return the errors of all rows together; NaN where nobody said any, or rows are out of range."""
    with np.errstate(all="ignore"):  # a warning would tell of such a row
        return kind.score(np.sum(tallies, axis=0)) if len(tallies) else Score(np.nan, None)


class Verdict(NamedTuple):
    """What all tallies amount to: errors of all rows, what data lack, in words, and which clients observed nothing.

    Where somebody asked, ``each`` are the errors of every client, and ``alone`` those of what it reaches alone.
    """

    whole: Score
    lacks: list[str]
    silent: list[int]
    each: list[Score]
    alone: list[Score | None]


def verdict(
    kind: Kind,
    outcome: Any,
    tallies: Sequence[Array],
    clients: Sequence[Any],
    *,
    features: Sequence[Any] | None = None,
    own: Sequence[Array | None] | None = None,
) -> Verdict:
    """Sum up what the clients say in the end; with ``own``, what each reaches alone (None: nothing), also of each."""
    silent = [j for j, (*_, cells) in enumerate(tallies) if cells == 0] if kind is GAPPED else []
    lines = _lacks(outcome, [str(clients[j]) for j in silent], features)
    each = [] if own is None else [kind.score(tally) for tally in tallies]
    alone = [None if tally is None else kind.score(tally) for tally in own or ()]
    return Verdict(overall(kind, tallies), lines, silent, each, alone)


def _lacks(outcome: Any, without: list[str], features: Sequence[Any] | None) -> list[str]:
    """Say which features and clients have no observed cell, and how many clients are too small for their summaries."""
    lines = []
    if outcome.unobserved:
        those = [str(j) if features is None else str(features[j]) for j in outcome.unobserved]
        known = "nothing is known of them, and the factor has 0 there."
        lines.append(f"features that nobody observed, but for rows of zeros: {few(those, SHOWN)}; {known}")
    if without:
        lines.append(f"clients without an observed cell: {few(without, SHOWN)}; their codes are 0.")
    return [*lines, *_too_short(outcome)]


def _too_short(outcome: Any) -> list[str]:
    """Say that clients have too few rows for one upload to hold what the rank asks for."""
    if not outcome.short:
        return []
    least = ROWS_PER_COMPONENT * len(outcome.factor)
    return [
        f"clients with fewer than {least} rows, twice the components: {outcome.short}. A summary has at most one "
        "component for two rows, so that theirs leave something out; method 'exact' goes on from there and finds it."
    ]


def here(kind: Kind, method: Any, data: Sequence[Any], codes: Sequence[Array], factor: Array) -> list[Array]:
    """Return the tallies of clients whose data and codes are both here: those of a private run leave no process."""
    both = zip(data, codes, strict=True) if len(codes) == len(data) else ()
    with np.errstate(all="ignore"):  # a warning would tell of a row
        return [kind.tally(method, X, W, factor) for X, W in both]
