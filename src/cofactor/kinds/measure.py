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
    """Return the errors of all rows together."""
    return kind.score(np.sum(tallies, axis=0))
