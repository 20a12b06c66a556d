"""Runs on files of ratings: fit, held-out errors, and what new users get from the factor alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cofactor import masked
from cofactor.data import load, ratings_split
from cofactor.data.formats.table import Table
from cofactor.engines.history import Stop
from cofactor.engines.rounds import Callback, Run, run
from cofactor.estimators import public
from cofactor.estimators.recommend import FederatedMF
from cofactor.masked import Layout
from cofactor.masked.ranking import rank_users
from cofactor.method import Method
from cofactor.methods import catalog
from cofactor.runs.config import Config
from cofactor.runs.folder import RunFolder
from cofactor.runs.inputs import Inputs, check_unchanged, describe, file_names
from cofactor.types import Array, CofactorError

TOP, RELEVANT = 10, 4.0


class Rated(NamedTuple):
    """The clients with what they train on, and all rows stacked: training and held-out part."""

    inputs: Inputs
    split: ratings_split.RatingsSplit


def fit(config: Config, out: Path, *, callbacks: Sequence[Callback] = ()) -> RunFolder:
    """Read the triples, fit the masked model to what is not held out, and write the run folder."""
    config = config.absolute()
    rated, method = read(config), make_method(config)
    folder = RunFolder.create(out, config, describe(rated.inputs))
    return _run(folder, config, rated, method, callbacks=callbacks)


def resume(folder: RunFolder, *, callbacks: Sequence[Callback] = ()) -> RunFolder:
    """Go on after the last round that the folder's checkpoint holds."""
    config = folder.config()
    rated = read(config)
    check_unchanged(rated.inputs, folder.inputs())
    return _run(folder, config, rated, make_method(config), callbacks=callbacks)


def make_method(config: Config) -> Method:
    """Build the masked method of a configuration."""
    return catalog.make(config.method, config.rank, **config.options)


def read(config: Config) -> Rated:
    """Read one file, whose users are clients, or several, which are clients; items are matched by name."""
    tables = _tables(config)
    items, R = _stacked(tables)
    split = _split(config, R)
    if len(tables) == 1:
        bounds, names, sources = np.arange(R.shape[0] + 1), tables[0].row_names or [], config.inputs * R.shape[0]
    else:
        bounds, names = np.cumsum([0, *(table.shape[0] for table in tables)]), file_names(config.inputs)
        sources = config.inputs
    data = [split.train[a:b] for a, b in pairwise(bounds)]
    return Rated(Inputs(names, data, items, sources), split)


def _tables(config: Config, column: str = "rating") -> list[Table]:
    """Read a column of every file."""
    return [load.read_ratings(p, duplicates=config.duplicates, column=column) for p in config.inputs]


def _stacked(tables: list[Table]) -> tuple[list[str], Any]:
    """Return the names of all items, and the rows of all tables as one CSR matrix over them."""
    items = sorted({name for table in tables for name in table.feature_names or []}, key=_by_number(tables))
    place = {name: i for i, name in enumerate(items)}
    return items, sparse.vstack([_columns(table, place) for table in tables], format="csr")


def _by_number(tables: list[Table]) -> Any:
    """Sort names as the tables do: by number where all are whole numbers."""
    whole = all(name.isdecimal() for table in tables for name in table.feature_names or [])
    return (lambda name: (int(name), name)) if whole else None


def _columns(table: Table, place: dict[str, int]) -> Any:
    """Return the ratings with the columns of ``place``; items that it lacks are left out."""
    C = table.X.tocoo()
    column = np.array([place.get(name, -1) for name in table.feature_names or []], dtype=np.int64)[C.col]
    known = column >= 0
    shape = (C.shape[0], len(place))
    return sparse.csr_matrix((C.data[known], (C.row[known], column[known])), shape=shape)


def _split(config: Config, R: Any) -> ratings_split.RatingsSplit:
    """Hold out what the configuration asks for."""
    if config.holdout is None:
        return ratings_split.RatingsSplit(R, sparse.csr_matrix(R.shape))
    if config.holdout == "time":
        return ratings_split.by_time(R, _stacked(_tables(config, "timestamp"))[1].data, share=config.holdout_share)
    by = {"random": ratings_split.at_random, "user": ratings_split.by_user}[config.holdout]
    return by(R, share=config.holdout_share, seed=config.seed)


def _run(
    folder: RunFolder, config: Config, rated: Rated, method: Method, *, callbacks: Sequence[Callback]
) -> RunFolder:
    saved, inputs = folder.checkpoint.load(), rated.inputs
    folder.rewind(len(saved.history) if saved else 0)
    outcome = run(
        method,
        inputs.data,
        rounds=config.rounds,
        seed=config.seed,
        participation=config.participation,
        stop=Stop(config.tol),
        checkpoint=folder.checkpoint,
        watch=folder.log_messages(inputs.names),
        callbacks=[folder.log_round, *callbacks],
    )
    layout: Layout = method.layout  # type: ignore[attr-defined]
    held = public.Public(outcome.factor, np.array(inputs.feature_names), layout)
    rows = [f"component{i}" for i in range(layout.rank)] + ["one", "item_bias", "mean"] * layout.biases
    folder.write_factor(outcome.factor, inputs.feature_names, rows=rows, more=public.arrays(held))
    for name, W in zip(inputs.names, outcome.codes, strict=True):
        folder.write_codes(name, W)
    folder.seal()
    folder.write_json("evaluation.json", evaluation(rated, outcome, layout, config))
    return folder


def evaluation(rated: Rated, outcome: Run, layout: Layout, config: Config) -> dict[str, Any]:
    """Return the relative error of every client over its observed entries, and errors of training and held-out part."""
    H, W = outcome.factor, np.vstack(outcome.codes)
    train, test = rated.split
    clients = [
        {"client": name, "rows": X.shape[0], "error": _relative(X, C, H, layout), "rmsd": _rmse(X, C, H, layout)}
        for name, X, C in zip(rated.inputs.names, rated.inputs.data, outcome.codes, strict=True)
    ]
    parts = [{"part": "training", "ratings": train.nnz, "rmse": _rmse(train, W, H, layout)}]
    if test.nnz:
        relevant = test.multiply(test > 0 if layout.implicit else test >= RELEVANT).tocsr()
        relevant.eliminate_zeros()
        found = {f"{name}@{TOP}": v for name, v in rank_users(W, H, train, relevant, n=TOP).mean.items()}
        part = f"held out by {config.holdout}" if config.holdout != "random" else "held out at random"
        parts.append({"part": part, "ratings": test.nnz, "rmse": _rmse(test, W, H, layout), **found})
    return {
        "error": _relative(train, W, H, layout),
        "rounds": len(outcome.history),
        "converged": outcome.converged,
        "users": train.shape[0],
        "items": train.shape[1],
        "parts": parts,
        "clients": clients,
        "match": None,
    }


def _relative(X: Any, W: Array, H: Array, layout: Layout) -> float:
    """``sqrt`` of the loss over that of predicting zeros; 0 without any rating."""
    most = masked.losses(X, np.zeros_like(W), H, layout).sum()
    return float(np.sqrt(max(masked.losses(X, W, H, layout).sum(), 0.0) / most)) if most > 0 else 0.0


def _rmse(X: Any, W: Array, H: Array, layout: Layout) -> float | None:
    """Root mean squared error on stored entries; clicks have none."""
    if layout.implicit or X.nnz == 0:
        return None
    return float(np.sqrt(masked.residual_squares(X, W, H).sum() / X.nnz))


def transform(folder: RunFolder, path: Path) -> tuple[Array, float]:
    """Return the codes of the users of a file from the factor alone, and how well they fit."""
    model, _, R = _new(folder, path)
    W = model.transform(R)
    return W, _relative(R, W, model.factor_, model.layout_)


def recommend(folder: RunFolder, path: Path, n: int) -> dict[str, list[str]]:
    """Return the n best unrated items of every user of a file, from the factor alone."""
    model, users, R = _new(folder, path)
    return {user: model.recommend(n=n, ratings=R[u]).tolist() for u, user in enumerate(users)}


def _new(folder: RunFolder, path: Path) -> tuple[FederatedMF, list[str], Any]:
    """Return the public model, and users and ratings of a file; items that the run does not know say nothing."""
    config = folder.config()
    if not config.ratings:
        raise CofactorError(f"{folder.path}: expected a run on ratings, found one of method {config.method!r}.")
    folder.factor()  # says what to do where a run has not ended
    model = FederatedMF.load(folder.path / "factor.npz")
    table = load.read_ratings(path, duplicates=config.duplicates)
    place = {str(name): i for i, name in enumerate(model.items_)}
    return model, table.row_names or [], _columns(table, place)
