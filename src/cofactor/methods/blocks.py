"""Row and column blocks: what each client holds of one matrix X (n x m), and how they are cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from cofactor.local import arrays
from cofactor.types import Array, Data, DataError


@dataclass(frozen=True, eq=False)
class Blocks:
    """What one client has of X (n x m): the rows ``X[I]`` and the columns ``X[:, J]``, I and J ranges."""

    row_block: Data
    column_block: Data
    first_row: int = 0
    first_column: int = 0

    ndim = 2

    @property
    def shape(self) -> tuple[int, int]:
        """Rows of the row block, and all features."""
        return self.row_block.shape[0], self.row_block.shape[1]

    @property
    def whole(self) -> tuple[int, int]:
        """Rows and features of X."""
        return self.column_block.shape[0], self.row_block.shape[1]

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return self.row_block.dtype

    @property
    def rows_here(self) -> slice:
        """The range I."""
        return slice(self.first_row, self.first_row + self.row_block.shape[0])

    @property
    def columns_here(self) -> slice:
        """The range J."""
        return slice(self.first_column, self.first_column + self.column_block.shape[1])

    @cached_property
    def by_column(self) -> Data:
        """The row block column by column in memory, made once: a sketch takes a few columns of it in every round."""
        if arrays.is_held(self.row_block):
            return self.row_block
        return self.row_block.tocsc() if hasattr(self.row_block, "tocsc") else np.asfortranarray(self.row_block)

    @property
    def columns_as_rows(self) -> Data:
        """The column block with its columns as rows, where it is: half-problems of the factor are of its columns."""
        return Turned(self.column_block) if arrays.is_held(self.column_block) else self.column_block.T

    def times_factor(self, H: Array) -> Array:
        """``X[I] H^T``: codes belong to the row block."""
        return arrays.times_factor(self.row_block, H)

    def times_codes(self, W: Array) -> Array:
        """``X[I]^T W``."""
        return arrays.times_codes(self.row_block, W)

    def row_squares(self) -> Array:
        """``|x_i|^2`` of the row block."""
        return arrays.row_squares(self.row_block)

    def check(self, *, client: object = 0, signed: bool = False) -> Blocks:
        """Check both blocks, and that they can be parts of one matrix."""
        a, b = (arrays.check(block, client=client, signed=signed) for block in (self.row_block, self.column_block))
        if self.rows_here.stop > b.shape[0] or self.columns_here.stop > a.shape[1]:
            raise DataError(
                f"client {client}: expected blocks of one matrix of {b.shape[0]} x {a.shape[1]}, found rows "
                f"{self.rows_here.start} to {self.rows_here.stop} and columns "
                f"{self.columns_here.start} to {self.columns_here.stop}."
            )
        return Blocks(a, b, self.first_row, self.first_column)

    def parted(self, change: Callable[[Data], Data]) -> Blocks:
        """Change both blocks."""
        return Blocks(change(self.row_block), change(self.column_block), self.first_row, self.first_column)

    def astype(self, dtype: Any) -> Blocks:
        """Convert both blocks."""
        return Blocks(self.row_block.astype(dtype), self.column_block.astype(dtype), self.first_row, self.first_column)


@dataclass(frozen=True)
class Turned:
    """Data that keep their rows elsewhere, with columns as rows: products change places."""

    X: Data

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return self.X.dtype

    def times_factor(self, H: Array) -> Array:
        """``X^T H^T``."""
        return arrays.times_codes(self.X, H.T)

    def times_codes(self, W: Array) -> Array:
        """``X W``."""
        return arrays.times_factor(self.X, W.T)


def blocks(X: Data, clients: int, own: slice = slice(None)) -> list[Blocks]:
    """Cut X into ``clients`` pairs of a row block and a column block; return those that are ``own`` (default: all).

    Dense blocks are views. Of data on disk nothing but the own blocks is kept in memory; all of them are read once.
    """
    n, m = X.shape
    if not 1 <= clients <= min(n, m):
        raise DataError(
            f"expected 1 to {min(n, m)} clients (the shorter side) for {n} x {m} values. Found {clients}; "
            "start fewer processes, or split the matrix into fewer clients."
        )
    if arrays.is_held(X) and len(range(clients)[own]) == clients:
        X = arrays.row_block(X, slice(0, n))
    by_column = X.tocsc() if hasattr(X, "tocsc") else X
    return [
        Blocks(arrays.row_block(X, i), arrays.column_block(by_column, j), i.start, j.start)
        for i, j in zip(_ranges(n, clients)[own], _ranges(m, clients)[own])
    ]


def _ranges(length: int, count: int) -> list[slice]:
    """Cut ``0..length-1`` into ranges whose lengths differ by at most one, the longer ones first."""
    ends = np.cumsum([length // count + (j < length % count) for j in range(count)]).tolist()
    return [slice(start, end) for start, end in pairwise([0, *ends])]


def cover(rows: slice, columns: slice) -> Array:
    """Return how many rows there are and the sum of their numbers, and so for columns: sums over clients tell all."""
    counts = ((r.stop - r.start, (r.stop - r.start) * (r.stop + r.start - 1) / 2) for r in (rows, columns))
    return np.array([number for pair in counts for number in pair], dtype=np.float64)


def check_cover(found: Array, whole: Array) -> None:
    """Refuse blocks that leave rows or columns out, or have some of them twice."""
    for side, i in (("row", 0), ("column", 2)):
        if not np.allclose(found[i : i + 2], whole[i : i + 2], rtol=1e-12):
            same = "some of them twice" if found[i] == whole[i] else f"{found[i]:.0f} in all"
            raise DataError(
                f"ragged blocks: expected every one of {whole[i]:.0f} {side}s in the {side} block of one client, found "
                f"{same}; cut the matrix with blocks()."
            )
