"""Reader of rating triples: one line per (user, item, rating)."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from scipy import sparse

from cofactor.data.formats.header import UNNAMED, Row, is_number
from cofactor.data.formats.table import Table, need
from cofactor.data.formats.text import open_text, rows, same_width
from cofactor.types import Array, DataError

_WORDS = {
    "user": ("user", "userid", "reviewer", "reviewerid", "customer", "customerid", "client"),
    "item": ("item", "itemid", "movie", "movieid", "product", "productid", "book", "bookid", "isbn", "asin"),
    "rating": ("rating", "score", "stars", "value", "overall"),
    "title": ("title", "name", "label", "itemname", "description"),
    "timestamp": ("timestamp", "time", "date", "datetime", "when", "unixtime", "unixreviewtime"),
}

_ORDER = ("user", "item", "rating", "timestamp")
DUPLICATES = ("error", "mean", "sum")  # what several ratings of one item by one user are
_VALUES = {"rating": "a rating", "timestamp": "a timestamp (seconds, or a date as 2024-05-31 or 2024-05-31 12:00:00)"}


@dataclass(frozen=True)
class _Triples:
    """Ratings in the order of the file: positions of user and item in order of appearance, value, line."""

    user: array[int] = field(default_factory=lambda: array("q"))
    item: array[int] = field(default_factory=lambda: array("q"))
    value: array[float] = field(default_factory=lambda: array("d"))
    line: array[int] = field(default_factory=lambda: array("q"))
    users: dict[str, int] = field(default_factory=dict)
    items: dict[str, int] = field(default_factory=dict)


def read_triples(path: Path, duplicates: str, column: str = "rating") -> Table:
    """Return ratings as CSR (users x items): what is not rated is not stored, and a rating of 0 is.

    ``column`` is "rating", or "timestamp" for times in their place.
    """
    with _lines(path) as lines:
        head = list(islice(lines, 1))
        if not head:
            raise DataError(f"{path}: expected lines of user,item,rating, found an empty file.")
        places, skip = _places(head[0][1], path, column)
        width = len(head[0][1])
        checked = same_width(chain([] if skip else head, lines), width, path, first=head[0][0])
        triples = _collect(checked, places, path, column)
    if not triples.line:
        raise DataError(f"{path}: expected lines of user,item,rating below the header, found none.")
    times = column == "timestamp"  # of several ratings the mean one, also where they are added up
    return _matrix(triples, "mean" if times and duplicates == "sum" else duplicates, path)


@contextmanager
def _lines(path: Path) -> Iterator[Iterator[Row]]:
    """Open the lines of a file, header included, as text; those of a parquet file are its rows."""
    if path.suffix.lower() == ".parquet":
        yield _stored(need("pyarrow.parquet", "io", path=path).ParquetFile(path))
        return
    with open_text(path) as file:
        yield rows(file, path)


def _stored(file: Any) -> Iterator[Row]:
    names = file.schema_arrow.names
    yield 1, names
    count = 1
    for batch in file.iter_batches():
        columns = batch.to_pydict()
        for cells in zip(*(columns[name] for name in names), strict=True):
            count += 1
            yield count, ["" if cell is None or cell != cell else str(cell) for cell in cells]  # noqa: PLR0124


def _places(first: Sequence[str], path: Path, column: str) -> tuple[list[int], bool]:
    """Return the columns of user, item and what is read, and whether the first line is a header.

    A first column without a name, which numbers the lines, is none of them.
    """
    numbered = len(first) > 2 and first[0].strip() in UNNAMED and not any(map(is_number, first))
    places, header = _places_among(first[numbered:], path, column)
    return [place + numbered for place in places], header


def _places_among(first: Sequence[str], path: Path, column: str) -> tuple[list[int], bool]:
    """Return the same of named columns: where users and items have no ratings beside them, every line counts as 1."""
    named = dict(zip(_ORDER, places_of(first, _ORDER), strict=True))
    taken = [place for place in named.values() if place is not None]
    stored = path.suffix.lower() == ".parquet"  # where columns always have names, if only numbers
    if column == "rating" and (len(first) == 2 or (named["rating"] is None and len(taken) == len(first))):
        header = stored or bool(taken)
        also = "" if header else ", the first one too"
        said = (
            f"{path}: no column of ratings: every line counts as 1{also}, as models of clicks take it (option alpha)."
        )
        places = _read_by(("user", "item"), named, taken, first, path) if header else [0, 1]
        warnings.warn(said, UserWarning, stacklevel=5)
        return places, header
    if len(first) < (4 if column == "timestamp" and named[column] is None else 3):
        shown = "user,item,rating[,timestamp]" if column == "rating" else "user,item,rating,timestamp"
        times = "" if column == "rating" else " Without times, hold out at random: --holdout random."
        raise DataError(f"{path}: line 1: expected {shown}, found {len(first)} cell(s).{times}")
    wanted = ("user", "item", column)
    if is_number(first[2]) and not stored:
        return [_ORDER.index(name) for name in wanted], False
    return _read_by(wanted, named, taken, first, path), True


def _read_by(
    wanted: Sequence[str], named: dict[str, int | None], taken: Sequence[int], header: Sequence[str], path: Path
) -> list[int]:
    """Return columns by their names, or by their place, which is told."""
    places = [_place(name, named[name], taken, header, path) for name in wanted]
    if None in (named[name] for name in wanted):
        read = ", ".join(f"{name} {header[place]!r}" for name, place in zip(wanted, places, strict=True))
        called = f"{', '.join(wanted[:-1])} and {wanted[-1]}"
        said = f"{path}: columns are read by their place: {read}; if that is wrong, call them {called}."
        warnings.warn(said, UserWarning, stacklevel=6)
    return places


def _place(what: str, found: int | None, taken: Sequence[int], header: Sequence[str], path: Path) -> int:
    """Return the column that a header names; in other words: its usual place, unless that is another's by name."""
    if found is not None:
        return found
    if (place := _ORDER.index(what)) in taken:
        shown = ", ".join(map(repr, header[:8]))
        raise DataError(
            f"{path}: line 1: expected a column that is called {what} (or {', '.join(_WORDS[what][1:4])}), "
            f"found {shown}; rename or add it."
        )
    return place


def places_of(header: Sequence[str], wanted: Sequence[str]) -> list[int | None]:
    """Return where columns of users, items, ratings, times or titles are by the words of a header; None where nowhere.

    >>> places_of(["userId", "movieId", "rating"], ["item", "timestamp"])
    [1, None]
    """
    plain = [name.lower().replace("_", "").replace(" ", "").replace("-", "") for name in header]
    return [next((plain.index(word) for word in _WORDS[what] if word in plain), None) for what in wanted]


def are_triples(path: Path) -> bool:
    """Whether a text file has the header of ratings: users, items and ratings, and times at most besides."""
    with _lines(path) as lines:
        head = next((cells for _, cells in lines), [])
    return len(head) <= len(_ORDER) and None not in places_of(head, _ORDER[:3])


def read_titles(path: Path) -> dict[str, str]:
    """Return titles by the ids of items, from a table with a column of each: by header, else the first two."""
    with open_text(path) as file:
        lines = [cells for _, cells in rows(file, path)]
    if not lines or min(map(len, lines)) < 2:
        raise DataError(f"{path}: expected lines of id,title, found {'fewer cells' if lines else 'an empty file'}.")
    item, title = places_of(lines[0], ("item", "title"))
    if item is None or title is None:
        item, title = 0, 1
    return {cells[item]: cells[title] for cells in lines}


def _collect(lines: Iterator[Row], places: Sequence[int], path: Path, column: str) -> _Triples:
    out = _Triples()
    user, item, *rest = places
    for number, cells in lines:
        value = _value(cells[rest[0]], column) if rest else 1.0
        if not np.isfinite(value):
            raise DataError(f"{path}: line {number}: expected {_VALUES[column]}, found {cells[rest[0]]!r}.")
        if not (cells[user].strip() and cells[item].strip()):
            who = "item" if cells[user].strip() else "user"
            raise DataError(f"{path}: line {number}: expected the name of the {who}, found none; drop or name it.")
        out.user.append(out.users.setdefault(cells[user], len(out.users)))
        out.item.append(out.items.setdefault(cells[item], len(out.items)))
        out.value.append(value)
        out.line.append(number)
    return out


def _value(cell: str, column: str) -> float:
    """Return a rating, or a time in seconds; NaN where it is neither."""
    try:
        return float(cell)
    except ValueError:
        if column == "rating":
            return np.nan
    try:
        time = datetime.fromisoformat(cell.strip())
    except ValueError:
        return np.nan
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _matrix(triples: _Triples, duplicates: str, path: Path) -> Table:
    users, row = _sorted(triples.users, triples.user)
    items, column = _sorted(triples.items, triples.item)
    order = np.lexsort((column, row))
    row, column, value = row[order], column[order], np.frombuffer(triples.value)[order]
    first = np.flatnonzero(np.append(True, (np.diff(row) != 0) | (np.diff(column) != 0)))
    if len(first) < len(value):
        if duplicates == "error":
            again = np.setdiff1d(np.arange(len(value)), first)[0]
            _refuse(users[row[again]], items[column[again]], triples.line[order[again]], path)
        value = merged(value, first, duplicates)
        row, column = row[first], column[first]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(users)))])
    X = sparse.csr_matrix((value, column, indptr), shape=(len(users), len(items)))
    return Table(X, items, users, {"user": np.array(users)})


def merged(values: Array, first: Array, duplicates: str) -> Array:
    """Return one value for every run of values that begins at ``first``: their mean, or their sum.

    >>> merged(np.array([1.0, 1.0, 4.0]), np.array([0, 2]), "sum").tolist()
    [2.0, 4.0]
    """
    total = np.add.reduceat(values, first)
    return total if duplicates == "sum" else total / np.diff(np.append(first, len(values))).astype(values.dtype)


def _sorted(known: dict[str, int], codes: array[int]) -> tuple[list[str], Array]:
    """Sort names (by number when all are whole numbers) and return them with the new position of every code."""
    whole = all(name.isdecimal() for name in known)
    names = sorted(known, key=lambda name: (int(name) if whole else 0, name))
    place = np.empty(len(names), dtype=np.int64)
    place[[known[name] for name in names]] = np.arange(len(names))
    return names, place[np.frombuffer(codes, np.int64)]


def _refuse(user: str, item: str, line: int, path: Path) -> NoReturn:
    raise DataError(
        f"{path}: line {line}: expected one rating per user and item, found another one of user {user!r} and item "
        f"{item!r}; take their mean: --duplicates mean, or duplicates='mean' in Python; of clicks their sum: sum."
    )
