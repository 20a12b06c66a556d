"""Files to tables: one function that knows every format by its suffix, and one for rating triples."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cofactor.data.formats import triples
from cofactor.data.formats.annotated import read_h5ad, read_zarr
from cofactor.data.formats.market import read_folder, read_mtx
from cofactor.data.formats.numpy_files import read_npy, read_npz
from cofactor.data.formats.parquet import read_parquet
from cofactor.data.formats.row_blocks import RowBlocks
from cofactor.data.formats.table import Options, Table, shown
from cofactor.data.formats.text import read_text
from cofactor.data.formats.triples import read_triples
from cofactor.types import CofactorError, DataError

__all__ = ["SUFFIXES", "RowBlocks", "Table", "read", "read_ratings"]

Reader = Callable[[Path, Options], Table]
PathLike = str | os.PathLike[str]

_READERS: dict[str, Reader] = {
    ".npy": read_npy,
    ".npz": read_npz,
    ".mtx": read_mtx,
    ".mtx.gz": read_mtx,
    ".csv": read_text,
    ".csv.gz": read_text,
    ".tsv": read_text,
    ".tsv.gz": read_text,
    ".parquet": read_parquet,
    ".h5ad": read_h5ad,
    ".zarr": read_zarr,
}
SUFFIXES = tuple(_READERS)
"""The suffixes that :func:`read` knows; a folder without suffix is a 10x folder."""

_TEXT = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_PARTLY = (".npy", ".npz", ".h5ad", ".zarr")
_RATED = (*_TEXT, ".parquet")
_USES = {
    "layer": (".h5ad", ".zarr"),
    "key": (".npz", ".zarr"),
    "obs": (*_TEXT, ".parquet"),
    "header": _TEXT,
    "blocks": (".npy", ".npz", ".parquet", ".h5ad", ".zarr", *_TEXT),
}


def read(
    path: PathLike,
    *,
    layer: str | None = None,
    key: str | None = None,
    obs: Sequence[str] = (),
    header: bool | None = None,
    blocks: bool | None = None,
    guesses: bool = True,
) -> Table:
    """Read a matrix (rows x features) with its names from a file, by its suffix, or from a 10x folder.

    ``layer`` chooses a layer of h5ad and anndata-zarr ("raw" for the raw matrix), ``key`` an array of npz or zarr;
    ``obs`` names columns of csv, tsv and parquet that are no features though they hold numbers, and ``header``
    says whether csv has one (default: look). ``blocks`` leaves npy, parquet, h5ad and zarr on disk as
    :class:`RowBlocks` (default: only when more than 1 GiB), and npz, csv and tsv too, where every read passes over what
    lies before it; what h5ad and zarr hold by columns (CSC) is read at once, if that is small. Without ``guesses`` the
    first line alone says whether text has a header: names or numbers alone.
    """
    path = Path(path)
    _check_exists(path)
    suffix, reader = _reader(path)
    options = Options(layer, key, tuple(obs), header, blocks, guesses)
    for name, suffixes in _USES.items():
        if getattr(options, name) not in (None, (), False) and suffix not in suffixes:
            raise CofactorError(f"{path}: the option {name} is for {', '.join(suffixes)}, not for {suffix}.")
    with _readable(path, suffix):
        table = reader(path, options)
    _check_names(table, path)
    return replace(table, source=str(path))


def read_features(
    path: PathLike, *, aside: Sequence[str] = (), opens: bool | None = None, distinct: bool = True, **how: Any
) -> Table:
    """Read a file whose columns are features with ``distinct`` names, if any, as :func:`read` does.

    Columns ``aside`` are none, where a format has them by name; numeric ones would pass for features. ``opens`` is
    ``blocks`` for formats of which parts can be read.
    """
    if are_ratings(path):
        raise CofactorError(
            f"{path}: expected features in columns, found lines of user,item,rating; add --ratings to fit."
        )
    named = has_columns(path)
    partly = opens if named or str(path).lower().endswith(_PARTLY) else None
    table = read(path, obs=aside if named else (), blocks=partly, **how)
    if distinct:
        check_distinct(table)
    return table


def read_ratings(path: PathLike, *, duplicates: str = "error", column: str = "rating") -> Table:
    """Read rating triples ``user,item,rating[,timestamp]`` as CSR (users x items): csv, tsv, zipped or not, parquet.

    Columns are found by their header names, else by position; where users and items have no ratings, every line is a 1.
    Ratings of one user and item that occur again are an error, or their mean or sum is taken. Users and items are in
    the order of their names. ``column="timestamp"`` gives the times (numbers, or dates in ISO 8601) in place of the
    ratings, entry by entry.
    """
    path = Path(path)
    _check_exists(path)
    if not path.name.lower().endswith(_RATED):
        raise DataError(f"{path}: expected ratings as {', '.join(_RATED)}, found {path.suffix or 'no suffix'}.")
    if duplicates not in triples.DUPLICATES:
        raise CofactorError(f"duplicates must be 'error', 'mean' or 'sum'. Found {duplicates!r}.")
    if column not in ("rating", "timestamp"):
        raise CofactorError(f"column must be 'rating' or 'timestamp'. Found {column!r}.")
    with _readable(path, path.suffix):
        table = read_triples(path, duplicates, column)
    return replace(table, source=str(path))


def has_columns(path: PathLike) -> bool:
    """Whether columns of a file can be set aside by name while it is read, also those that hold text."""
    return Path(path).name.lower().endswith(_USES["obs"])


def are_ratings(path: PathLike) -> bool:
    """Whether a csv or tsv file, zipped or not, or a parquet file has the header of rating triples."""
    path = Path(path)
    if not (path.is_file() and path.name.lower().endswith(_RATED)):
        return False
    with _readable(path, path.suffix):
        return triples.are_triples(path)


def read_titles(path: PathLike) -> dict[str, str]:
    """Read what items are called, ``id,title`` (csv or tsv, zipped or not): titles by ids."""
    path = Path(path)
    _check_exists(path)
    with _readable(path, path.suffix):
        return triples.read_titles(path)


def _check_exists(path: Path) -> None:
    if path.is_file() or path.is_dir():
        return
    if path.exists():
        raise DataError(
            f"{path}: expected a file, found a pipe or a device; write what comes out of it to a file first."
        )
    folder = path.parent
    near = get_close_matches(path.name, os.listdir(folder), n=1) if folder.is_dir() else []
    hint = f"; did you mean {str(folder / near[0])!r}?" if near else "."
    raise DataError(f"{path}: expected a file, found nothing there{hint}")


def _reader(path: Path) -> tuple[str, Reader]:
    """Return the known suffix of a path and its reader."""
    name = path.name.lower()
    suffix = max((known for known in _READERS if name.endswith(known)), key=len, default="")
    if path.is_dir() and suffix != ".zarr":
        return "10x folder", read_folder
    if suffix == ".zarr" and not path.is_dir():
        raise DataError(f"{path}: expected a folder, as .zarr is, found a file.")
    if not suffix:
        found = repr("".join(path.suffixes[-2:])) if path.suffix else "none"
        raise DataError(f"{path}: expected one of the suffixes {', '.join(SUFFIXES)}, found {found}.")
    return suffix, _READERS[suffix]


@contextmanager
def _readable(path: Path, suffix: str) -> Iterator[None]:
    """Turn what readers raise on broken files into one line."""
    try:
        yield
    except CofactorError:
        raise
    except MemoryError as error:
        raise DataError(f"{path}: expected to hold all of it in memory, found too little: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected text in UTF-8, found another encoding; save it as UTF-8.") from error
    except Exception as error:  # readers of broken files raise what they like
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = getattr(error, "strerror", None) or lines[0]
        raise DataError(f"{path}: expected a readable {suffix} file, found it unreadable: {reason}") from error


def _check_names(table: Table, path: Path) -> None:
    """Refuse names and obs that do not fit the matrix."""
    rows, features = table.shape
    lists: dict[str, tuple[Any, int]]
    lists = {"feature names": (table.feature_names, features), "row names": (table.row_names, rows)}
    lists |= {f"values of obs {name!r}": (values, rows) for name, values in table.obs.items()}
    for what, (values, length) in lists.items():
        if values is not None and len(values) != length:
            raise DataError(f"{path}: expected {length} {what} for shape {table.shape}, found {len(values)}.")


def check_distinct(table: Table, *, annotated: bool | None = None) -> None:
    """Refuse features that have the same name: nobody could say which of them new rows mean."""
    names = table.feature_names or []
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    twice = list(dict.fromkeys(name for name in names if name in seen or seen.add(name)))  # type: ignore[func-returns-value]
    found = f"{shown(twice)} more than once"
    annotated = table.source.endswith(".h5ad") if annotated is None else annotated
    remedy = "adata.var_names_make_unique() renames them" if annotated else "rename them, or add their columns up"
    raise DataError(f"{table.source}: expected distinct feature names, found {found}; {remedy}.")
