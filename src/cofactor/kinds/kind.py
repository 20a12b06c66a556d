"""What every kind of data answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from cofactor.types import Array, Data


class Score(NamedTuple):
    """How well codes and factor fit data: an error relative to the data, and in their unit (None where it has none)."""

    error: float
    rmsd: float | None


class Kind(Protocol):
    """What the data of a run are."""

    @property
    def name(self) -> str:
        """The word for it in the catalog."""
        ...

    @property
    def called(self) -> str:
        """What such data are, in words."""
        ...

    @property
    def compares(self) -> bool:
        """Whether components are compared with those of clients alone (passports, local fits, a pooled bound)."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """Options that every method of this kind gets unless they are given, or privacy is asked for."""
        ...

    def check(self, X: Any, client: object = 0) -> Data:
        """Return one client's data as the methods take them, or raise DataError with the client's name."""
        ...

    def tally(self, method: Any, X: Data, W: Array, H: Array) -> Array:
        """Return what of the errors of some rows adds up over rows and clients (a flat array)."""
        ...

    def score(self, tally: Array) -> Score:
        """Return the errors that a tally amounts to."""
        ...

    def alone(self, components: Sequence[int]) -> str:
        """Say of components that are made of a single row each what they hold, and what to do."""
        ...

    @property
    def public(self) -> Callable[[Any], tuple[list[str], dict[str, Array]]] | None:
        """Of a method: names for rows of the factor, and what else a reader must know; None: rows are components."""
        ...

    @property
    def pictures(self) -> Callable[[Data, Array, Array], dict[str, Array]] | None:
        """Of (X, W, H): small pictures of a client's rows, for that client's own folder; None where there are none."""
        ...


def of_one_row(noun: str, components: Sequence[int], holds: str) -> str:
    """Say that components, or centres, are made of a single row each: what they hold, and what to do.

    >>> of_one_row("centre", [2], "it")[:50]
    'centre 2 is a single row: the shared factor holds '
    """
    one = len(components) == 1
    those, verb = ", ".join(map(str, components)), "is" if one else "are each"
    return (
        f"{noun}{'' if one else 's'} {those} {verb} a single row: the shared factor holds {holds}, and so does whoever "
        "gets it or the report. Take fewer components, or leave such rows out; or keep all of it to yourself."
    )


def root(up: float, down: float) -> float:
    """``sqrt(up / down)``, 0 where there is nothing to divide by."""
    return float(np.sqrt(max(up, 0.0) / down)) if down > 0 else 0.0
