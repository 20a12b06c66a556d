"""Codes as files that keep the names of rows: npy, csv, tsv and parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cofactor.data.formats.table import need
from cofactor.files import atomic
from cofactor.types import Array, CofactorError

Rows = Sequence[str] | None
Writer = Callable[[BinaryIO, Array, Rows, Sequence[str], Path], None]


def write_codes(path: Path, W: Array, rows: Rows = None, columns: Rows = None) -> None:
    """Write codes (n x k) by the suffix of the path; tables have a column ``row`` where rows have names.

    ``columns`` are names of the others, where not all are components. An npy file holds numbers alone.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        known = ", ".join([*WRITERS, ".h5ad"])
        raise CofactorError(f"{path}: expected one of the suffixes {known}, found {path.suffix or 'none'}.")
    with atomic(path) as file:
        writer(file, W, rows, columns or names(W.shape[1]), path)


def names(k: int) -> list[str]:
    """Return the names of the columns of codes."""
    return [f"component{i}" for i in range(k)]


def _npy(file: BinaryIO, W: Array, rows: Rows, columns: Sequence[str], path: Path) -> None:
    np.save(file, W)


def _text(separator: str) -> Writer:
    def write(file: BinaryIO, W: Array, rows: Rows, columns: Sequence[str], path: Path) -> None:
        stream = io.TextIOWrapper(file, encoding="utf-8", newline="")
        out = csv.writer(stream, delimiter=separator, lineterminator="\n")
        out.writerow([*([] if rows is None else ["row"]), *columns])
        for i, codes in enumerate(W):  # the shortest digits that come back as the same number of its precision
            out.writerow([*([] if rows is None else [rows[i]]), *map(str, codes)])
        stream.flush()
        stream.detach()

    return write


def _parquet(file: BinaryIO, W: Array, rows: Rows, columns: Sequence[str], path: Path) -> None:
    arrow = need("pyarrow", "io", path=path)
    need("pyarrow.parquet", "io", path=path)
    held = {} if rows is None else {"row": list(rows)}
    held |= dict(zip(columns, W.T, strict=True))
    arrow.parquet.write_table(arrow.table(held), file)


WRITERS: dict[str, Writer] = {
    ".npy": _npy,
    ".csv": _text(","),
    ".tsv": _text("\t"),
    ".parquet": _parquet,
}
"""Every suffix that is written."""
