"""New rows for a finished run: codes, and recommendations, from the factor alone, on the machine that holds them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cofactor import kinds
from cofactor.data import load
from cofactor.data.formats.table import Table
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.reading import in_places, read_table, reordered
from cofactor.local.columns import SomeColumns
from cofactor.method import Method
from cofactor.methods.build import Facts, build
from cofactor.types import Array, CofactorError, Data

if TYPE_CHECKING:
    from cofactor.estimators.mf import FederatedMF


def transform(folder: RunFolder, path: Path, *, layer: str | None = None) -> tuple[Array, float]:
    """Return the codes of new rows for a run's factor, and their relative error; features are matched by name."""
    H, names = folder.factor()
    config = folder.config()
    method, kind = method_of(config, len(folder.manifest_record().inputs)), kinds.named(config.kind)
    if kind.name == "ratings":
        X = _ratings(folder, path)[2]
    else:
        plain = replace(config, layer=layer or config.layer, group_by=None, label=None, split=None)
        table = read_table(str(path), plain)
        aside = {name for name in (config.group_by, config.label) if name}
        X = _in_order(table, names, path, some=config.features == "intersection", aside=aside)
        if X.shape[1] != H.shape[1]:
            raise CofactorError(f"{path}: expected {H.shape[1]} features like the factor, found {X.shape[1]}.")
    kind = kinds.named(method.traits.kind)
    X = kind.check(X, path.name)
    W = method.refit(X, H)
    return W, kind.score(kind.tally(method, X, W, H)).error


def method_of(config: Config, clients: int, *, rows: int = 1, features: int = 1) -> Method:
    """Build the method of a run without its data; blocks of one matrix have the codes of ``exact``."""
    name = "exact" if config.kind == "blocks" else config.method
    options = {} if config.kind == "blocks" else config.method_options
    return build(name, config.rank, config.plan, Facts(clients, features, rows), options)[0]


def _in_order(table: Table, names: list[str], path: Path, *, some: bool, aside: set[str]) -> Data:
    """Return the rows with the features of the factor; features that the file lacks are missing, not zero.

    Of a run over ``some`` features of its inputs, others are left out here too, as are columns that were set ``aside``.
    """
    if table.feature_names is None or names == [f"feature{i}" for i in range(len(names))]:
        return table.X
    place = {name: i for i, name in enumerate(names)}
    known = [i for i, name in enumerate(table.feature_names) if name in place]
    unknown = [name for name in table.feature_names if name not in place and name not in aside]
    if unknown and not (some and known):
        raise CofactorError(f"{path}: expected features of the run only, found also {', '.join(unknown[:3])}.")
    X = table.X if len(known) == table.shape[1] else table.X[:, known]
    index = np.array([place[table.feature_names[i]] for i in known])
    return reordered(X, index) if len(index) == len(names) else SomeColumns(X, index, len(names))


def recommend(folder: RunFolder, path: Path, n: int) -> dict[str, list[str]]:
    """Return the n best unrated items of every user of a file, from the factor alone."""
    model, users, R = _ratings(folder, path)
    return {user: model.recommend(n=n, ratings=R[u]).tolist() for u, user in enumerate(users)}


def _ratings(folder: RunFolder, path: Path) -> tuple[FederatedMF, list[str], Any]:
    """Return the public model, and users and ratings of a file; items that the run does not know say nothing."""
    config = folder.config()
    if config.kind != "ratings":
        raise CofactorError(f"{folder.path}: expected a run on ratings, found one of method {config.method!r}.")
    folder.factor()  # says what to do where a run has not ended
    from cofactor.estimators.mf import FederatedMF  # with scikit-learn and pandas: a second of every command

    model = FederatedMF.load(folder.path / "factor.npz")
    table = load.read_ratings(path, duplicates=config.duplicates)
    place = {str(name): i for i, name in enumerate(model.items_)}
    return model, table.row_names or [], in_places(table, place)
