"""From files to clients: read, match features by name, split or group, hash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cofactor.data import harmonise, load, partition
from cofactor.data.formats.table import Table
from cofactor.local import arrays
from cofactor.local.columns import SomeColumns
from cofactor.methods.blocks import blocks
from cofactor.runs.config import Config
from cofactor.types import Array, CofactorError, Data


@dataclass(frozen=True)
class Inputs:
    """The clients of a run: names, data, shared feature names and where each came from."""

    names: list[str]
    data: list[Data]
    feature_names: list[str] | None
    sources: list[str]
    known: list[Array] | None = None
    note: str = ""

    @property
    def n_features(self) -> int:
        """How many features the shared factor has."""
        return int(self.data[0].shape[1])


def open_inputs(config: Config) -> Inputs:
    """Read the files of a configuration and make clients of them."""
    if config.blocked:
        return in_blocks(config, read_table(config.inputs[0], config))
    if len(config.inputs) == 1 and (config.group_by or config.split):
        return simulated(config, read_table(config.inputs[0], config))
    return matched_inputs(config, [read_table(path, config) for path in config.inputs])


def in_blocks(config: Config, table: Table, *, own: Callable[[int], slice] = lambda count: slice(None)) -> Inputs:
    """Cut one file into row and column blocks; of so many, ``own`` says which are taken."""
    count = config.split or 1
    names = [f"client-{j}" for j in range(count)] if config.split else file_names(config.inputs)
    mine = own(count)
    data: list[Data] = [*blocks(table.X, count, mine)]
    return Inputs(names[mine], data, table.feature_names, [config.inputs[0]] * len(data))


def matched_inputs(config: Config, tables: list[Table], own: slice = slice(None)) -> Inputs:
    """Match the features of all files; return the clients that are ``own`` (default: all)."""
    matched = harmonise.match(tables, how=config.features)  # type: ignore[arg-type]
    data = [matched.select(table.X, j) for j, table in enumerate(tables)][own]
    known = matched.columns if matched.how == "union" else None
    if known is not None and all(len(index) == matched.n_features for index in known):
        data = [reordered(X, index) for X, index in zip(data, known[own], strict=True)]
        known = None
    if known is not None:
        data = [SomeColumns(X, index, matched.n_features) for X, index in zip(data, known[own], strict=True)]
    names, sources = file_names(config.inputs)[own], list(config.inputs)[own]
    return Inputs(names, data, matched.feature_names, sources, known, matched.note)


def reordered(X: Data, index: Array) -> Data:
    """Put columns that are all there into the order of the features."""
    back = np.argsort(index)
    return X if np.array_equal(back, np.arange(len(back))) else X[:, back]


def read_table(path: str, config: Config, *, blocks: bool | None = None) -> Table:
    """Read one file of a configuration; ``blocks`` leaves formats that can be read in parts on disk."""
    # a table has no group column to set aside unless one is named: numeric ones would pass for features
    columns = [name for name in (config.group_by, config.label) if name]
    text = path.lower().endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz"))
    named = text or path.lower().endswith(".parquet")
    partly = blocks if text or path.lower().endswith((".npy", ".npz", ".h5ad", ".zarr")) else None
    return load.read(path, layer=config.layer, obs=columns if named else (), blocks=partly)


def take(X: Data, index: Array) -> Data:
    """Return rows as a client's data; those on disk stay there."""
    return X.take(index) if hasattr(X, "take") and arrays.is_held(X) else arrays.rows(X, index)


def simulated(
    config: Config,
    table: Table,
    *,
    own: Callable[[int], slice] = lambda count: slice(None),
    take: Callable[[Data, Array], Data] = take,
) -> Inputs:
    """Make clients of one file, by a column or by a partitioner; of so many, ``own`` says which are taken."""
    if config.group_by:
        groups = partition.by_group(table.column(config.group_by))
        names, parts = [str(name) for name in groups], list(groups.values())
    else:
        parts = _split(table, config)
        names = [f"client-{j}" for j in range(len(parts))]
    mine = own(len(parts))
    data = [take(table.X, part) for part in parts[mine]]
    return Inputs(names[mine], data, table.feature_names, [config.inputs[0]] * len(data))


def _split(table: Table, config: Config) -> list[Array]:
    count = config.split or 1
    if config.by == "iid":
        return partition.iid(table.shape[0], count, seed=config.seed)
    if config.by == "rows":
        return partition.sorted_by(np.arange(table.shape[0]), count)
    labels = table.column(config.label or "")
    if config.by == "sorted":
        return partition.sorted_by(labels, count)
    return partition.dirichlet(labels, count, alpha=config.alpha, seed=config.seed)


def file_names(paths: Sequence[str]) -> list[str]:
    """Name clients after their files, with a number where names repeat."""
    stems = [Path(p).name.split(".")[0] for p in paths]
    return [stem if stems.count(stem) == 1 else f"{stem}-{j}" for j, stem in enumerate(stems)]


def describe(inputs: Inputs) -> list[dict[str, Any]]:
    """Return one line per client for the manifest; each file is hashed once."""
    hashes = {source: sha256(Path(source)) for source in set(inputs.sources)}
    return [
        {"client": name, "path": source, "sha256": hashes[source], "rows": X.shape[0], "features": X.shape[1]}
        for name, source, X in zip(inputs.names, inputs.sources, inputs.data, strict=True)
    ]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, or of all files of a folder in the order of their names."""
    digest = hashlib.sha256()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        with open(file, "rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def check_unchanged(inputs: Inputs, described: list[dict[str, Any]]) -> None:
    """Refuse to resume over data that changed since the run began."""
    before = {line["path"]: line.get("sha256") for line in described}
    for source in dict.fromkeys(inputs.sources):
        if before.get(source) != sha256(Path(source)):
            raise CofactorError(f"{source}: expected the data that the run began with, found other contents.")
