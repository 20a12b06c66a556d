"""Rows and cells that count more or less than others, in a job: a column, or a layer, of the files says how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cofactor.data import load
from cofactor.data.formats.table import Table, did_you_mean
from cofactor.local import arrays
from cofactor.local.weighted import Weighted
from cofactor.methods import catalog
from cofactor.types import Array, CofactorError, Data, DataError

LAYERED = (".h5ad", ".zarr")
"""Files that have layers: weights of cells may be among them."""
SQUARES = 2.0
"""The beta of a method that has no other: half the squared distance."""


def check(config: Any) -> None:
    """Refuse weights where nothing would read them, or where noise is made for rows that count once."""
    asked = {"--cell-weights": config.cell_weights, "--row-weights": config.row_weights}
    given = [name for name, value in asked.items() if value is not None]
    if not given:
        return
    if len(given) > 1:
        raise CofactorError(
            "expected either --cell-weights or --row-weights, found both; multiply them into the layer."
        )
    if config.epsilon is not None:
        raise CofactorError(f"{given[0]} is refused in a private run: noise is made for rows that count once.")
    kind = "gaps" if config.cell_weights else "real"
    if config.kind != kind:
        fine = "--method exact" if config.cell_weights else "a method for non-negative numbers without gaps"
        raise CofactorError(f"{given[0]}: expected {fine} to go with it, found {config.method!r}.")
    others = [path for path in config.inputs if not path.lower().endswith(LAYERED)]
    if config.cell_weights and others:
        raise CofactorError(f"--cell-weights names a layer: expected h5ad or zarr files, found {others[0]}.")
    if config.engine != "inline":
        raise CofactorError(f"{given[0]}: expected --engine inline to go with it, found {config.engine}.")
    if config.row_weights and not beta(config) > 0:
        raise CofactorError(f"--row-weights: expected a beta above 0 to go with it, found {beta(config):g}.")


def beta(config: Any) -> float:
    """Return the beta of the divergence that a run fits."""
    entry = catalog.CATALOG.get(config.method)
    own = entry is not None and "beta" in entry.options
    return float(config.options.get("beta", entry.default("beta"))) if own and entry is not None else SQUARES


def of_rows(table: Table, name: str | None) -> Array | None:
    """Return the weights of the rows of a table, checked; None where there is no such column to ask for."""
    if name is None:
        return None
    if name not in table.obs:
        known = f"found {', '.join(map(repr, list(table.obs)[:20]))}" if table.obs else "found no such columns"
        said = f"{table.source}: expected a column {name!r} of row weights, {known}{did_you_mean(name, table.obs)}"
        raise DataError(said)
    try:
        found = np.asarray(table.obs[name], dtype=np.float64)
    except (ValueError, TypeError):
        found = np.array([np.nan])
    if not (np.isfinite(found).all() and (found > 0).all()):
        raise DataError(
            f"{table.source}: expected row weights {name!r} above 0, found others; leave rows out that do not count."
        )
    return found


def of_cells(table: Table, layer: str) -> Table:
    """Return a table whose cells have the weights of a layer of the same file."""
    parts = [table.X, load.read(table.source, layer=layer, blocks=False).X]
    parts = [X.load() if arrays.is_held(X) else X for X in parts]
    X, weight = map(arrays.dense, parts)
    if weight.shape != X.shape:
        raise CofactorError(f"{table.source}: expected cell weights of shape {X.shape}, found {weight.shape}.")
    return replace(table, X=Weighted(X, weight))


def scales(weights: Sequence[Array], config: Any) -> list[Array]:
    """Return by what rows are scaled to count as often as they should: ``w^(1/b)`` for a divergence of beta b."""
    return [w ** (1 / beta(config)) for w in weights]


def scaled(data: Sequence[Data], scales: Sequence[Array]) -> list[Data]:
    """Multiply every row of every client by its own number."""
    return [arrays.scaled_rows(X, s) for X, s in zip(data, scales, strict=True)]
