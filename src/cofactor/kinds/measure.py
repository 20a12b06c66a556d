"""Work that every client can do in the end: say how well codes and factor fit its rows, in sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cofactor.kinds.kind import Kind, Score
from cofactor.types import Array


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


def here(kind: Kind, method: Any, data: Sequence[Any], codes: Sequence[Array], factor: Array) -> list[Array]:
    """Return the tallies of clients whose data and codes are both here: those of a private run leave no process."""
    both = zip(data, codes, strict=True) if len(codes) == len(data) else ()
    with np.errstate(all="ignore"):  # a warning would tell of a row
        return [kind.tally(method, X, W, factor) for X, W in both]
