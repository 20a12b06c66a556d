"""The first lines of a text file: what separates its cells, whether one holds names, where rows end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from cofactor.types import DataError

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
"""What stands for a missing number, in any case; it becomes NaN."""

LOGICAL = {"true": 1.0, "false": 0.0}
"""What is a number too, in any case."""

UNNAMED = ("", "Unnamed: 0")
"""Names of a column that only numbers or names the rows, as pandas writes it."""

Row = tuple[int, list[str]]
"""Line number in the file (from 1) and its cells."""

_MARKS = ",;\t"
_TOLD = re.compile(r'"?sep=([,;\t])"?\s*', re.IGNORECASE)
_HEADING = re.compile(
    r"[^\d]*(?:id|name|index|row|sample|cell|barcode|patient|subject|case|document|user)s?", re.IGNORECASE
)
_EVEN, _IN_ORDER = 5, 8  # columns from which numbers in even steps, or in order alone, are names rather than a row


def opening(file: IO[str], *, tabs: bool, guesses: bool = True) -> tuple[list[str], str, int]:
    """Return the first lines from one that is not blank on, what separates cells, and how many lines stand before them.

    Tabs separate in ``.tsv``; else what ``sep=;`` says, a line of its own that spreadsheets write; else ``, ; tab``
    (:func:`separator`). Where nothing may be guessed, only the first line is looked at.
    """
    before, told = 0, ""
    while (first := file.readline()) and ((said := _TOLD.fullmatch(first)) or not first.strip(" \r\n")):
        before, told = before + 1, said[1] if said else told
    if tabs or told:
        return [first], "\t" if tabs else told, before
    lines = [first]
    while guesses and (line := file.readline()):
        lines.append(line)
        if line.strip(" \r\n"):
            break
    return lines, separator(first, lines[-1] if len(lines) > 1 else ""), before


def separator(first: str, second: str = "") -> str:
    """Return the most frequent of ``, ; tab`` outside quotes of those that part two lines into as many cells.

    Names may hold the others: ranks of a taxon are parted by semicolons, and there are commas in names of chemicals.
    Without a second line names that are there twice tell that they were parted where they should not.

    >>> separator("id,Bacteria;Firmicutes;A,Bacteria;Firmicutes;B", "s1,.5,.5"), separator("x;y", "1,5;2,5")
    (',', ';')
    """
    names, below = (re.sub(r'"[^"]*"', lambda quoted: re.sub("[,;\t]", " ", quoted[0]), s) for s in (first, second))
    there = [mark for mark in _MARKS if mark in names]
    alike = [mark for mark in there if abs(names.count(mark) - below.count(mark)) <= 1]  # R, or one too many at the end
    if not below.strip():
        alike = [mark for mark in there if len(set(names.split(mark))) > names.count(mark)]
    return max(alike or _MARKS, key=names.count)


def check_names(first: list[str], path: Path) -> None:
    """Refuse a first line that is no header, whatever follows it: of a private run nothing may be guessed.

    A row that is taken for a header would be published as names of features; and without a header a file that loses its
    only row would not say how many features there are.
    """
    known = [cell for cell in first if cell.strip().lower() not in MISSING]
    if not known or any(map(is_number, known)):
        raise DataError(
            f"{path}: expected names of all columns, none of them a number, in the first line of a file for a private "
            "run, found another one or none; write one above the rows."
        )


def split_header(head: list[Row], header: bool | None) -> tuple[list[str] | None, list[Row]]:
    """Return the names in the first line (None if it holds data) and the rows below it.

    A header one cell short is R's: its rows begin with their names.
    """
    first, body = head[0][1], head[1:]
    if not (_is_header(first, [cells for _, cells in body]) if header is None else header):
        return None, head
    if body and all(len(cells) == len(first) + 1 for _, cells in body):
        first = ["", *first]
    return [name.strip() for name in first], body


def _is_header(first: list[str], body: list[list[str]]) -> bool:
    """Whether most cells over numeric columns are no numbers, or are numbers that name columns.

    Such are those of pandas (0, 1, 2, ...), numbers in order as wavelengths and years are, and any beside the heading
    of a column that names rows.
    """
    shift = 1 if body and all(len(cells) == len(first) + 1 for cells in body) else 0
    places = [i for i in range(len(first)) if not body or is_numeric(_column(body, i + shift))]
    unnamed = shift == 0 and not first[0].strip() and bool(body)  # the place of the index
    if (unnamed or _HEADING.fullmatch(first[0].strip())) and not is_numeric(_column(body, 0)):
        return True
    places = places[1:] if unnamed else places
    over = [first[i] for i in places]
    values = [cell for cell in over if is_number(cell)]
    if len(values) == len(over) > (0 if unnamed else 2):
        below = ([cells[i + shift] for i in places if i + shift < len(cells)] for cells in body)
        return over == [str(i) for i in range(len(over))] or (in_order(over) and not any(map(in_order, below)))
    return len(values) * 2 < len(over)


def in_order(cells: Sequence[str]) -> bool:
    """Whether cells are numbers that rise or fall throughout, and so many that a row would hardly do so.

    >>> in_order(["1990", "1991", "1992", "1993", "1994"]), in_order(["3", "5", "6"])
    (True, False)
    """
    if len(cells) < _EVEN or not all(map(is_number, cells)):
        return False
    steps = np.diff([float(cell) for cell in cells])
    steady = bool(np.all(steps > 0) or np.all(steps < 0))
    return steady and (len(cells) >= _IN_ORDER or bool(np.allclose(steps, steps[0])))


def is_number(cell: str) -> bool:
    """Whether a cell is a number (nan and inf too); 12_1, which Python reads as 121, is a name."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def is_numeric(cells: Sequence[str]) -> bool:
    """Whether at least half of the cells that are not missing are numbers."""
    present = [cell for cell in cells if cell.strip().lower() not in MISSING]
    return 2 * sum(is_number(cell) or cell.strip().lower() in LOGICAL for cell in present) >= len(present)


def _column(body: list[list[str]], i: int) -> list[str]:
    return [cells[i] for cells in body if i < len(cells)]


def trailing(head: list[Row]) -> int | None:
    """Return how many cells are before the empty one with which all lines end, one delimiter too many; or None."""
    first, body = head[0][1], [cells for _, cells in head[1:]]
    blank = len(first) > 1 and not first[-1].strip()
    width = len(first) - blank
    ends = bool(body) and all(len(cells) == width + 1 and not cells[-1].strip() for cells in body)
    return width if ends and (blank or is_numeric(_column(body, 0))) else None


def cut(lines: Iterable[Row], width: int | None) -> Iterator[Row]:
    """Pass rows on without the empty cell that follows ``width`` others."""
    for number, cells in lines:
        yield number, cells[:-1] if len(cells) - 1 == width and not cells[-1].strip() else cells
