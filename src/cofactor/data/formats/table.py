"""What every reader returns, and the few things that all readers need."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cofactor.data.formats.row_blocks import BLOCK_BYTES, RowBlocks
from cofactor.data.formats.stored import Source
from cofactor.types import Array, CofactorError, Data, DataError, few

_NUMBERED = re.compile(r"(id|.*[_ -]id|.*Id|index|row|row[_ ]?(number|nr))", re.ASCII)  # names of columns
NOT_THERE = ("None", "nan", "NaT", "<NA>")
"""What is missing in a column of objects, as it prints."""
LAZY_BYTES = 1 << 30
"""A dense or CSR matrix that would take more memory than this is left on disk and read in row blocks."""


@dataclass(frozen=True)
class Table:
    """A matrix (rows x features) as it lies in a file, with the names that came along.

    ``X`` is a dense array (perhaps memory-mapped), a CSR matrix or :class:`RowBlocks`, with the values as stored:
    :func:`cofactor.local.arrays.check` judges them. ``obs`` holds the columns that are no features, one value
    per row, to group rows by.
    """

    X: Data
    feature_names: list[str] | None = None
    row_names: list[str] | None = None
    obs: dict[str, Array] = field(default_factory=dict)
    source: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.X.shape

    def column(self, name: str) -> Array:
        """Return the obs column ``name``, or say which there are."""
        if name in self.obs:
            return self.obs[name]
        known = f"found {', '.join(map(repr, list(self.obs)[:20]))}" if self.obs else "found no such columns"
        raise DataError(f"{self.source}: expected a column {name!r} to group by, {known}{did_you_mean(name, self.obs)}")


@dataclass(frozen=True)
class Options:
    """What the caller of :func:`cofactor.data.load.read` chose; each reader looks at its own."""

    layer: str | None = None
    key: str | None = None
    obs: tuple[str, ...] = ()
    header: bool | None = None
    blocks: bool | None = None
    guesses: bool = True


def choose(source: Source, options: Options, block_bytes: int = BLOCK_BYTES) -> RowBlocks | None:
    """Return the source as row blocks if that was asked for, or if it is too large for memory; else None."""
    rows = RowBlocks(source, block_bytes)
    lazy = is_large(rows) if options.blocks is None else options.blocks
    return rows if lazy else None


def is_large(rows: RowBlocks) -> bool:
    """Whether rows stay on disk unless somebody asks for them in memory."""
    return rows.nbytes > LAZY_BYTES


def need(package: str, extra: str, *, path: Path) -> Any:
    """Import an optional package, or name the extra that brings it."""
    try:
        return import_module(package)
    except ImportError as error:
        name = package.partition(".")[0]
        raise CofactorError(f"{path}: reading it needs the package {name}: pip install 'cofactor[{extra}]'") from error


def numbers(dtype: np.dtype[Any], *, path: Path, what: str = "the array") -> None:
    """Refuse an array that does not hold real numbers."""
    if dtype.kind not in "fiub":
        kind = "Python objects" if dtype.hasobject else f"dtype {dtype}"
        raise DataError(f"{path}: expected numbers in {what}, found {kind}; save it as a plain numeric array.")


def did_you_mean(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    """Return the end of a sentence: a hint at the nearest known name, or a full stop."""
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


def tell_beside(path: Path, table: Table, obs: Sequence[str], index: str | None) -> None:
    """Say which columns are no features, unless the caller set them aside, and which may be one by mistake.

    Only names are looked at: of a private run nothing else may be said. ``index`` is the column that would name rows.
    """
    beside = [name for name in table.obs if name not in obs and name != index]
    if beside:
        said = f"{path}: columns without numbers, which are no features: {shown(beside, 5)}."
        warnings.warn(said, UserWarning, stacklevel=3)
    numbered = [name for name in table.feature_names or [] if _NUMBERED.fullmatch(name)]
    if numbered:
        said = f"{path}: columns that seem to number rows are features: {shown(numbered, 5)}; see --leave-out."
        warnings.warn(said, UserWarning, stacklevel=3)


def shown(names: Sequence[str], most: int = 3) -> str:
    """Show a few names, and how many more there are."""
    return few([repr(name) for name in names], most)


def listed(text: str | None) -> list[str]:
    """Return what commas separate in a text.

    >>> listed("a, b,,c"), listed(None)
    (['a', 'b', 'c'], [])
    """
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def absent(values: Any) -> int:
    """Return how many names of a column are not there: None, NaN, what pandas writes for them, and text that is blank.

    An empty cell of a csv file is the last of these: nobody is called that.
    """
    column = np.asarray(values)
    if column.dtype.kind in "OUT":
        return sum(not one.strip() if isinstance(one, str) else str(one) in NOT_THERE for one in column.tolist())
    return int(np.sum(column != column)) if column.dtype.kind in "fmM" else 0  # noqa: PLR0124


def plain(values: Any) -> Array:
    """Return a column as an array: numbers as they are, text as strings, anything else as objects."""
    column = np.asarray(values)
    if column.dtype.kind in "OT" and all(isinstance(value, str) for value in column):
        return column.astype(str)
    return column
