"""What a client finds alone: in all of its rows, or in some that stand for them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cofactor.local import arrays
from cofactor.local.brief import padded
from cofactor.methods.alone import Alone
from cofactor.methods.summed import Summed
from cofactor.types import Array, Data

OWN_ROUNDS = 30
"""Rounds of a client alone from the shared factor."""
OWN_ROWS = 2000
"""Rows that show what a client finds alone, or 100 for each component.

Of clients with 6000 to 16 000 rows (digits, clothes, census, text, in order and not) 2000 drawn ones find as many of
the shared components as another seed of a fit of all rows does, in a fifth of the time or less.
"""


class Drawn(NamedTuple):
    """Rows that stand for all of a client's: scaled so that, in the mean, their squares add up to those of all."""

    rows: Array
    scale: Array

    def data(self, X: Data) -> Data:
        """Return these rows of the data."""
        return arrays.scaled_rows(arrays.rows(X, self.rows), self.scale)

    def codes(self, W: Array) -> Array:
        """Return the codes of these rows."""
        return W[self.rows] * self.scale.astype(W.dtype)[:, None]


class Own(NamedTuple):
    """Codes and factor of a client alone, of all its rows or of those that were ``drawn``."""

    codes: Array
    factor: Array
    drawn: Drawn | None = None


def own_cells(rows: int, features: int, rank: int) -> int:
    """Return how many cells a client looks at to see what it finds alone."""
    return min(rows, 2 * _enough(rank)) * features


def _enough(rank: int) -> int:
    return max(OWN_ROWS, 100 * rank)


def draw(X: Data, count: int, rng: np.random.Generator) -> Drawn | None:
    """Draw about ``count`` rows if there are at least twice as many: half evenly and half by their squares.

    Evenly drawn rows alone would miss the few in which most of some data lies, such as long texts. Each is drawn by
    itself, so that its chance is known: the rows that would have more than one are always there.
    """
    n = X.shape[0]
    if n < 2 * count:
        return None
    squares = arrays.row_squares(X)
    even = np.full(n, 1 / n)
    part = (even + squares / squares.sum()) / 2 if squares.any() else even
    sure, chance = np.zeros(n, bool), count * part
    while (more := (chance > 1) & ~sure).any():
        sure |= more
        chance = (count - sure.sum()) * part / part[~sure].sum()
    chance = np.where(sure, 1, chance)
    rows = np.flatnonzero(rng.random(n) < chance)
    return Drawn(rows, 1 / np.sqrt(chance[rows]))


def found_alone(X: Data, k: int, rng: np.random.Generator) -> Own:
    """Client: codes and factor of its own, as the one-upload start finds them; in some of its rows where it has many.

    Zeros where it has too few.
    """
    drawn, alone = draw(X, _enough(k), rng), Alone(Summed(k))
    found = padded(alone, X, k, rng) if drawn is None else _in_single(alone, drawn.data(X), k, rng)
    return Own(*found, drawn)


def own_from(X: Data, factor: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Client: codes and factor that some rounds on its rows alone make of the shared factor."""
    alone = Alone(Summed(len(factor)), rounds=OWN_ROUNDS)
    return alone(X, len(factor), rng, start=factor.astype(X.dtype))


def _in_single(alone: Alone, X: Data, k: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return (W, H) of a client alone, found in single precision, in which rows at a size of 1 have room: for half."""
    size = np.sqrt(arrays.square(X) / np.prod(X.shape)) or 1.0
    W, H = padded(alone, (X / size).astype(np.float32), k, rng)
    return W.astype(X.dtype) * X.dtype.type(size), H.astype(X.dtype)
