"""Reader of comma- and tab-separated files: numeric columns are features, the others obs."""

from __future__ import annotations

import csv
import gzip
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, NoReturn

import numpy as np

from cofactor.data.formats.failing import OnDisk
from cofactor.data.formats.header import (
    LOGICAL,
    MISSING,
    UNNAMED,
    Row,
    check_names,
    cut,
    in_order,
    is_number,
    is_numeric,
    opening,
    split_header,
    trailing,
)
from cofactor.data.formats.row_blocks import RowBlocks
from cofactor.data.formats.stored import Dense
from cofactor.data.formats.table import Options, Table, did_you_mean, tell_beside
from cofactor.types import Array, DataError

_COMMA = re.compile(r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*")  # 12,5 where semicolons separate
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+)?\s*")  # 1.234 there, which is 1234 to who wrote 12,5
_BETWEEN = "commas, semicolons or tabs"
_SAMPLE = 64  # rows that decide what is a header, a number or text
_CELLS = 1 << 18  # cells that are converted at once


@dataclass(frozen=True)
class _Layout:
    """Names of all columns (None without header), which are features, and whether rows may say how they are parted."""

    names: list[str] | None
    features: list[int]
    others: list[int]
    index: int | None
    guesses: bool


def read_text(path: Path, options: Options) -> Table:
    """Read a ``.csv`` / ``.tsv`` file, zipped or not.

    A header is found by itself unless ``options.header`` says so. A first column without a header name, or of
    distinct text, names the rows. Columns of text and those in ``options.obs`` go to obs. Where nothing may be guessed,
    the first line must be one of names, and it alone says what is a feature.
    """
    with open_text(path) as file:
        lines = rows(file, path, guesses=options.guesses)
        head = list(islice(lines, _SAMPLE))
        if not options.guesses:
            check_names(head[0][1] if head else [], path)
        elif not head:
            raise DataError(f"{path}: expected rows of numbers, found an empty file.")
        end = trailing(head) if options.guesses else None
        head, lines = list(cut(head, end)), cut(lines, end)
        names, body = split_header(head, options.header if options.guesses else True)
        width = len(head[0][1] if names is None else names)
        layout = _layout(path, names, body, options)
        checked = same_width(chain(body, lines), width, path, first=head[0][0])
        table = _table(checked, layout, path, blocks=bool(options.blocks))
    index = None if names is None or layout.index is None else names[layout.index]
    tell_beside(path, table, options.obs, index)
    _tell_numbers(path, table.feature_names)
    return table


def _tell_numbers(path: Path, names: Sequence[str] | None) -> None:
    """Say that a first line of numbers was taken for names, unless they only count the columns."""
    if names and in_order(names) and names != [str(i) for i in range(len(names))]:
        said = f"{path}: the first line, {names[0]} to {names[-1]}, is taken for the names of features."
        warnings.warn(said, UserWarning, stacklevel=3)


def open_text(path: Path) -> IO[str]:
    """Open a text file, zipped or not; a byte order mark is skipped."""
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def rows(file: IO[str], path: Path, *, guesses: bool = True) -> Iterator[Row]:
    """Yield the lines that are not blank, with their cells.

    Where semicolons separate, commas are decimal ones, as spreadsheets write them in much of Europe. Between tabs
    nobody could tell them from thousands.
    """
    tabs = path.name.lower().removesuffix(".gz").endswith(".tsv")
    first, delimiter, before = opening(file, tabs=tabs, guesses=guesses)
    reader = csv.reader(chain(first, file), delimiter=delimiter, skipinitialspace=True)
    marks: dict[str, tuple[int, str]] = {}
    for cells in reader:
        if len(cells) > 1 or (cells and cells[0].strip()):
            line = before + reader.line_num
            yield line, [_pointed(cell, line, marks, path) for cell in cells] if delimiter == ";" else cells


def _pointed(cell: str, line: int, marks: dict[str, tuple[int, str]], path: Path) -> str:
    """Return a number with a decimal comma as one with a point, all else as it is; ``marks`` are those found so far.

    Beside decimal commas a point before three digits is one of thousands, or another program's decimal one: refused.
    """
    point = "." in cell and _THOUSANDS.fullmatch(cell) is not None
    comma = "," in cell and (point or _COMMA.fullmatch(cell) is not None)
    if point or comma:
        marks |= {mark: (line, cell) for mark, found in ((".", point), (",", comma)) if found and mark not in marks}
        if len(marks) == 2:
            (number, thousand), (_, other) = marks["."], marks[","]
            raise DataError(
                f"{path}: line {number}: expected numbers with one decimal mark, found {thousand!r}, whose point may "
                f"be one of thousands, in a file with {other!r}; write numbers without thousands."
            )
    return cell.replace(",", ".") if comma else cell


def same_width(lines: Iterable[Row], width: int, path: Path, *, first: int) -> Iterator[Row]:
    """Pass rows on while they have ``width`` cells."""
    for number, cells in lines:
        if len(cells) != width:
            raise DataError(f"{path}: line {number}: expected {width} cells as in line {first}, found {len(cells)}.")
        yield number, cells


def _layout(path: Path, names: list[str] | None, body: list[Row], options: Options) -> _Layout:
    obs = options.obs
    if not body and options.guesses:  # in a private run a client without rows is like any other
        raise DataError(f"{path}: expected rows of numbers below the header, found none.")
    for name in obs:
        if name not in (names or []):
            found = "no header" if names is None else f"{len(names)} other columns"
            raise DataError(f"{path}: expected a column {name!r}, found {found}{did_you_mean(name, names or [])}")
    columns = range(len(body[0][1]) if names is None else len(names))
    cells = [row for _, row in body]
    unnamed = names is not None and len(names) > 1 and names[0] in UNNAMED
    guessed = [i for i in columns if options.guesses and not is_numeric([row[i] for row in cells if i < len(row)])]
    text = sorted({*guessed, *([0] if unnamed or (not options.guesses and names and names[0] in obs) else [])})
    others = set(text) | {i for i in columns if names is not None and names[i] in obs}
    features = [i for i in columns if i not in others]
    if not features:
        example = f", as {cells[-1][0]!r}; numbers, True and False are read, between {_BETWEEN}" if guessed else ""
        raise DataError(
            f"{path}: expected at least one column of numbers, found {len(columns)} column(s) of text{example}."
        )
    return _Layout(names, features, sorted(others), 0 if 0 in text else None, options.guesses)


@dataclass(frozen=True)
class TextRows(OnDisk, Dense):
    """The features of a text file: every read goes through its lines and converts no more than is asked for."""

    layout: _Layout
    shape: tuple[int, int]

    dtype = np.dtype(np.float64)

    def read(self, start: int, stop: int) -> Array:
        """Return rows ``start:stop``."""
        return np.concatenate([np.empty((0, self.shape[1])), *self._parts(start, stop)])

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns ``start:stop``, in one pass."""
        features = self.layout.features[start:stop]
        layout = replace(self.layout, features=features)
        parts = replace(self, layout=layout, shape=(self.shape[0], len(features)))
        return parts.read(0, self.shape[0])

    def _parts(self, start: int, stop: int) -> Iterator[Array]:
        with self.rows(start, stop), open_text(self.path) as file:
            lines = rows(file, self.path, guesses=self.layout.guesses)
            body = islice(lines, 0 if self.layout.names is None else 1, None)
            yield from (
                _convert(batch, self.layout, self.path) for batch in _batches(islice(body, start, stop), self.shape[1])
            )


def _batches(lines: Iterator[Row], width: int) -> Iterator[list[Row]]:
    """Yield rows, a few at a time."""
    while batch := list(islice(lines, max(1, _CELLS // width))):
        yield batch


def _table(lines: Iterator[Row], layout: _Layout, path: Path, *, blocks: bool) -> Table:
    """Convert rows, a few at a time, to a table; or only count them, and leave the features on disk."""
    chunks: list[Array] = []
    text: list[list[str]] = [[] for _ in layout.others]
    count = 0
    for batch in _batches(lines, len(layout.features)):
        count += len(batch)
        if not blocks:
            chunks.append(_convert(batch, layout, path))
        for i, column in zip(layout.others, text):
            column.extend(cells[i] for _, cells in batch)
    columns = dict(zip(layout.others, text))
    index = columns.get(-1 if layout.index is None else layout.index)
    distinct = index is not None and len(set(index)) == len(index)
    named = None if layout.names is None else [layout.names[i] for i in layout.features]
    names = layout.names or [f"column {i + 1}" for i in range(len(columns) + len(layout.features))]
    obs = {names[i]: _values(column) for i, column in columns.items() if names[i]}
    none = np.empty((0, len(layout.features)))
    X = RowBlocks(TextRows(path, layout, (count, none.shape[1]))) if blocks else np.concatenate(chunks or [none])
    return Table(X, named, index if distinct else None, obs)


def _values(column: list[str]) -> Array:
    """Return whole numbers where all cells are plain ones (not 007), so that they sort as such; else text."""
    if all(cell.isdecimal() and len(cell) < 18 and (cell == "0" or cell[0] != "0") for cell in column):
        return np.array([int(cell) for cell in column])
    return np.array(column, dtype=str)


def _convert(batch: list[Row], layout: _Layout, path: Path) -> Array:
    shape = len(batch), len(layout.features)
    cells = [row[i] for _, row in batch for i in layout.features]
    try:
        if "_" not in "".join(cells):
            return np.fromiter(map(float, cells), float, shape[0] * shape[1]).reshape(shape)
    except ValueError:
        pass
    return np.array([[_number(row[i], line, i, layout, path) for i in layout.features] for line, row in batch])


def _number(cell: str, line: int, column: int, layout: _Layout, path: Path) -> float:
    word = cell.strip().lower()
    if word in MISSING:
        return np.nan
    if word not in LOGICAL and not is_number(cell):
        _refuse(cell, line, column, layout, path)
    return LOGICAL[word] if word in LOGICAL else float(cell)


def _refuse(cell: str, line: int, column: int, layout: _Layout, path: Path) -> NoReturn:
    name = f"column {column + 1}" if layout.names is None else f"column {layout.names[column]!r}"
    hint = (
        ""
        if layout.names is None
        else "; if the column is no feature, leave it out (--leave-out, or obs= of load.read)"
    )
    raise DataError(f"{path}: line {line}: expected a number in {name}, found {cell!r}{hint}.")
