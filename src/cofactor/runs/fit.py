"""Fit, resume and transform over files."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cofactor.boolean import tally
from cofactor.data.formats.table import Table
from cofactor.engines.history import Round
from cofactor.engines.inline import check_clients
from cofactor.engines.rounds import Callback
from cofactor.local import arrays
from cofactor.local.columns import SomeColumns
from cofactor.method import Method
from cofactor.methods import catalog
from cofactor.metrics import relative_error
from cofactor.report.sections.boolean import shrunk
from cofactor.runs import private
from cofactor.runs.build import check_sizes, make_method, named_method
from cofactor.runs.carry import carry, write_arrivals
from cofactor.runs.choice import settled
from cofactor.runs.config import Config
from cofactor.runs.evaluate import boolean_evaluation, evaluation, is_small
from cofactor.runs.folder import RunFolder
from cofactor.runs.inputs import Inputs, check_unchanged, describe, open_inputs, read_table, reordered
from cofactor.select import Passport, RankScan, passports, select_rank
from cofactor.select.passports import LAST_ROUNDS
from cofactor.types import Array, CofactorError, Data, Shared

VIEW_ROWS = 5000


def fit(config: Config, out: Path, *, callbacks: Sequence[Callback] = ()) -> RunFolder:
    """Read the inputs, run the method, and write the run folder."""
    if config.ratings:
        from cofactor.runs import ratings

        return ratings.fit(config, out, callbacks=callbacks)
    config = settled(config)
    if config.engine == "mpi":
        from cofactor.runs import mpi

        return mpi.fit(config, out, callbacks=callbacks)
    config = config.absolute()
    inputs = open_inputs(config)
    prepared = _prepare(config, inputs)  # what cannot be run leaves no folder behind
    lines, method = describe(inputs), prepared[0]
    if config.privacy is None:
        folder = RunFolder.create(out, config, lines)
    else:
        folder = RunFolder.create(out, config, private.released(lines), privacy=private.total(method))
        private.describe(folder, lines)
    return _run(folder, config, inputs, prepared, callbacks=callbacks)


def resume(out: Path, *, callbacks: Sequence[Callback] = ()) -> RunFolder:
    """Go on after the last round that the folder's checkpoint holds; a finished run stays as it is."""
    folder = RunFolder.open(out)
    if (folder.path / "evaluation.json").exists():
        return folder
    config = folder.config()
    if config.ratings:
        from cofactor.runs import ratings

        return ratings.resume(folder, callbacks=callbacks)
    if config.engine == "mpi":
        from cofactor.runs import mpi

        return mpi.resume(folder, callbacks=callbacks)
    inputs = open_inputs(config)
    check_unchanged(inputs, folder.inputs())
    return _run(folder, config, inputs, _prepare(config, inputs), callbacks=callbacks)


def _prepare(config: Config, inputs: Inputs) -> tuple[Method, list[Data]]:
    """Build the method and check the data."""
    method, data = make_method(config, inputs), check_clients(inputs.data)
    rows = sum(X.shape[0] for X in data)
    check_sizes(config, rows=rows, n_features=inputs.n_features)
    private.check(config, method, rows=rows, clients=len(data))
    return method, data


def _run(
    folder: RunFolder,
    config: Config,
    inputs: Inputs,
    prepared: tuple[Method, list[Data]],
    *,
    callbacks: Sequence[Callback],
) -> RunFolder:
    method, data = prepared
    saved = folder.checkpoint.load()
    folder.rewind(len(saved.history) if saved else 0, private=config.privacy is not None)
    factors: deque[Array] = deque(maxlen=LAST_ROUNDS + 1)
    described = not (config.boolean or config.privacy) and is_small(data)

    def remember(line: Round, shared: Shared) -> None:
        if described:
            factors.append(method.factor(shared))

    outcome = carry(
        folder,
        config,
        method,
        data,
        clients=len(data),
        watch=folder.log_messages(inputs.names),
        callbacks=[folder.log_round, remember, *callbacks],
    )
    write_arrivals(folder, outcome, inputs.names)
    folder.write_factor(outcome.factor, inputs.feature_names, image_shape=config.image_shape)
    for name, W in zip(inputs.names, outcome.codes, strict=True):
        folder.write_codes(name, W)
    if config.privacy:
        private.write_own(folder, inputs.names, data, outcome, boolean=config.boolean)
        private.conclude(folder, outcome)
        return folder
    if described:
        found = passports(
            data,
            outcome.factor,
            outcome.codes,
            history_factors=list(factors),
            feature_names=inputs.feature_names,
            seed=config.seed,
        )
        folder.write_json("passports.json", [_passport(p) for p in found])
    if config.boolean:
        for name, X, W in zip(inputs.names, data, outcome.codes, strict=True):
            folder.write_view(name, view(X, W, outcome.factor))
    evaluate = boolean_evaluation if config.boolean else evaluation
    folder.seal()
    folder.write_json("evaluation.json", evaluate(data, inputs.names, outcome, seed=config.seed))
    return folder


def view(X: Data, W: Array, H: Array) -> dict[str, Array]:
    """Return small pictures of at most the first rows."""
    part = arrays.rows(X, np.arange(min(VIEW_ROWS, X.shape[0])))
    return shrunk(part.toarray() if hasattr(part, "toarray") else part, W[:VIEW_ROWS], H)


def _passport(p: Passport) -> dict[str, Any]:
    """Return a passport in the words of the report."""
    return {
        "component": p.component,
        "clients_found": p.clients,
        "n_clients": p.n_clients,
        "stability": p.stability,
        "drift": p.drift,
        "share": p.share,
        "top_features": [[str(name), weight] for name, weight in p.features],
    }


def scan_ranks(config: Config, ranks: Sequence[int], *, seeds: int = 3) -> RankScan:
    """Scan ranks over the inputs of a configuration."""
    return select_rank(open_inputs(config).data, ranks, seeds=seeds, seed=config.seed)


def transform(folder: RunFolder, path: Path, *, layer: str | None = None) -> tuple[Array, float]:
    """Return the codes of new rows for a run's factor, and their relative error; features are matched by name."""
    H, names = folder.factor()
    config = folder.config()
    if config.ratings:
        from cofactor.runs import ratings

        return ratings.transform(folder, path)
    table = read_table(str(path), replace(config, layer=layer or config.layer, group_by=None, label=None))
    X = _in_order(table, names, path)
    X = arrays.check(X, client=path.name)
    if X.shape[1] != H.shape[1]:
        raise CofactorError(f"{path}: expected {H.shape[1]} features like the factor, found {X.shape[1]}.")
    method = catalog.make("exact", config.rank) if config.blocked else named_method(config, clients=3)
    W = method.refit(X, H)
    return W, tally(X, W, H).loss if config.boolean else relative_error(X, W, H)


def _in_order(table: Table, names: list[str], path: Path) -> Data:
    """Return the rows with the features of the factor; features that the file lacks are missing, not zero."""
    if table.feature_names is None or names == [f"feature{i}" for i in range(len(names))]:
        return table.X
    place = {name: i for i, name in enumerate(names)}
    unknown = [name for name in table.feature_names if name not in place]
    if unknown:
        raise CofactorError(f"{path}: expected features of the run only, found also {', '.join(unknown[:3])}.")
    index = np.array([place[name] for name in table.feature_names])
    if len(index) == len(names):
        return reordered(table.X, index)
    return SomeColumns(table.X, index, len(names))
