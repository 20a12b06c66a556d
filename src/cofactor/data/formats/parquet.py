"""Reader of parquet files: columns of numbers (decimals too) are features, the others obs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cofactor.data.formats.failing import OnDisk
from cofactor.data.formats.row_blocks import BLOCK_BYTES, working_dtype
from cofactor.data.formats.stored import Dense
from cofactor.data.formats.table import Options, Table, choose, did_you_mean, need, plain, tell_beside
from cofactor.types import Array, DataError

GROUP_BYTES = 8 * BLOCK_BYTES
"""Row groups up to this size are blocks, each decoded once a round; of larger ones a read decodes what lies before."""
BATCH = 1 << 12
"""Rows that are decoded at a time."""


def read_parquet(path: Path, options: Options) -> Table:
    """Read a ``.parquet`` file; the index that pandas stored, or a first column of distinct text, names the rows."""
    file = need("pyarrow.parquet", "io", path=path).ParquetFile(path)
    names: list[str] = file.schema_arrow.names
    for name in options.obs:
        if name not in names:
            raise DataError(f"{path}: expected a column {name!r}, found {len(names)} others{did_you_mean(name, names)}")
    index = _index(file.schema_arrow)
    features = [n for n in names if n not in {*options.obs, *index} and _is_numeric(file.schema_arrow.field(n).type)]
    if not features:
        raise DataError(f"{path}: expected at least one column of numbers, found {', '.join(names[:10]) or 'none'}.")
    chosen = set(features)
    beside = file.read(columns=[name for name in names if name not in chosen])
    obs = {name: plain(beside.column(name).to_numpy()) for name in names if name not in chosen}
    row_names = _row_names(obs, [*index, *names[:1]])
    kept = {name: column for name, column in obs.items() if not name.startswith("__")}
    source = ParquetRows(path, tuple(features), (file.metadata.num_rows, len(features)), _dtype(file, features))
    rows = choose(source, options, _block_bytes(file, source))
    X = source.read(0, source.shape[0]) if rows is None else rows
    table = Table(X, features, row_names, kept)
    tell_beside(path, table, options.obs, next(iter([*index, *(n for n in names[:1] if n in kept)]), None))
    return table


@dataclass(frozen=True)
class ParquetRows(OnDisk, Dense):
    """The columns ``features`` of a parquet file; missing values are NaN."""

    features: tuple[str, ...]
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def read(self, start: int, stop: int) -> Array:
        """Return rows ``start:stop``: of the row groups that hold some, a batch at a time until all are there."""
        with self.rows(start, stop):
            return self._read(start, stop)

    def _read(self, start: int, stop: int) -> Array:
        file = need("pyarrow.parquet", "io", path=self.path).ParquetFile(self.path)
        out = np.empty((stop - start, self.shape[1]), self.dtype)
        ends = np.cumsum([file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)])
        first, last = np.searchsorted(ends, [start, max(stop - 1, start)], side="right")
        low = int(ends[first - 1]) if first else 0
        groups = list(range(int(first), min(int(last) + 1, len(ends))))
        if stop <= start or not groups:
            return out[:0]
        for batch in file.iter_batches(BATCH, groups, list(self.features)):
            begin, end = max(start - low, 0), min(stop - low, batch.num_rows)
            if begin < end:
                _fill(out[low + begin - start : low + end - start], batch.slice(begin, end - begin), self.features)
            low += batch.num_rows
            if low >= stop:
                return out
        return out[: max(low - start, 0)]


def _index(schema: Any) -> list[str]:
    """Return the columns that pandas stored as the index."""
    stored = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in stored if isinstance(name, str)]


def _is_numeric(kind: Any) -> bool:
    return str(kind).startswith(("int", "uint", "float", "double", "halffloat", "bool", "decimal"))


def _is_decimal(kind: Any) -> bool:
    return str(kind).startswith("decimal")


def _dtype(file: Any, features: list[str]) -> np.dtype[Any]:
    """Return the type that holds all features, and NaN where values are missing or may be."""
    fields = [file.schema_arrow.field(name).type for name in features]
    kinds = {np.dtype(np.float64 if _is_decimal(kind) else kind.to_pandas_dtype()) for kind in fields}
    return np.result_type(*kinds, *([np.float32] if _may_miss(file.metadata, set(features)) else []))


def _may_miss(metadata: Any, features: set[str]) -> bool:
    """Whether the file says that values of these columns are missing, or does not say that none is."""
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        for column in map(group.column, range(group.num_columns)):
            known = column.statistics
            if column.path_in_schema in features and (known is None or not known.has_null_count or known.null_count):
                return True
    return False


def _block_bytes(file: Any, source: ParquetRows) -> int:
    """Return the bytes of as many whole row groups as make a block, where groups are no larger than a few blocks."""
    row = source.shape[1] * working_dtype(source.dtype).itemsize
    group = row * (file.metadata.row_group(0).num_rows if file.metadata.num_row_groups else 0)
    return max(1, BLOCK_BYTES // group) * group if 0 < group <= GROUP_BYTES else BLOCK_BYTES


def _fill(out: Array, batch: Any, features: tuple[str, ...]) -> None:
    """Write the feature columns of a batch to an array; missing values are NaN."""
    for i, name in enumerate(features):
        column = batch.column(batch.schema.get_field_index(name))
        column = column.cast("float64") if _is_decimal(column.type) else column
        out[:, i] = column.to_numpy(zero_copy_only=False)


def _row_names(obs: dict[str, Array], candidates: list[str]) -> list[str] | None:
    """Return the first candidate that is text with distinct values."""
    for name in candidates:
        values = obs.get(name)
        if values is not None and values.dtype.kind == "U" and len(set(values.tolist())) == len(values):
            return values.tolist()
    return None
