"""Reader of parquet files: columns of numbers (decimals too) are features, the others obs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cofactor.data.formats.table import Options, Table, did_you_mean, need, plain, tell_beside
from cofactor.types import Array, DataError


def read_parquet(path: Path, options: Options) -> Table:
    """Read a ``.parquet`` file; the index that pandas stored, or a first column of distinct text, names the rows."""
    parquet = need("pyarrow.parquet", "io", path=path)
    data = parquet.ParquetFile(path).read()
    names: list[str] = data.column_names
    for name in options.obs:
        if name not in names:
            raise DataError(f"{path}: expected a column {name!r}, found {len(names)} others{did_you_mean(name, names)}")
    index = _index(data)
    features = [name for name in names if name not in {*options.obs, *index} and _is_numeric(data, name)]
    if not features:
        raise DataError(f"{path}: expected at least one column of numbers, found {', '.join(names[:10]) or 'none'}.")
    chosen = set(features)
    obs = {name: plain(data.column(name).to_numpy()) for name in names if name not in chosen}
    row_names = _row_names(obs, [*index, *names[:1]])
    kept = {name: column for name, column in obs.items() if not name.startswith("__")}
    table = Table(_matrix(data, features), features, row_names, kept)
    tell_beside(path, table, options.obs, next(iter([*index, *(n for n in names[:1] if n in kept)]), None))
    return table


def _index(data: Any) -> list[str]:
    """Return the columns that pandas stored as the index."""
    stored = (data.schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in stored if isinstance(name, str)]


def _is_numeric(data: Any, name: str) -> bool:
    kind = str(data.schema.field(name).type)
    return kind.startswith(("int", "uint", "float", "double", "halffloat", "bool", "decimal"))


def _matrix(data: Any, features: list[str]) -> Array:
    """Return the feature columns as one array; missing values are NaN."""
    columns = [data.column(name) for name in features]
    columns = [column.cast("float64") if str(column.type).startswith("decimal") else column for column in columns]
    kinds = {np.dtype(column.type.to_pandas_dtype()) for column in columns}
    missing = any(column.null_count for column in columns)
    X = np.empty((data.num_rows, len(features)), np.result_type(*kinds, *([np.float32] if missing else [])))
    for i, column in enumerate(columns):
        X[:, i] = column.to_numpy()
    return X


def _row_names(obs: dict[str, Array], candidates: list[str]) -> list[str] | None:
    """Return the first candidate that is text with distinct values."""
    for name in candidates:
        values = obs.get(name)
        if values is not None and values.dtype.kind == "U" and len(set(values.tolist())) == len(values):
            return values.tolist()
    return None
