"""Fit and resume on several MPI processes: each reads its own clients, process 0 writes what all share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.boolean import Tally, tally
from cofactor.data.formats.table import Table
from cofactor.engines.inline import check_clients
from cofactor.engines.mpi import Mpi, ProcessCheckpoint
from cofactor.engines.processes import Processes
from cofactor.engines.rounds import Callback, Reply, Run
from cofactor.local import arrays
from cofactor.method import Method
from cofactor.methods.blocks import Blocks
from cofactor.runs import private
from cofactor.runs.build import check_sizes, make_method, streams
from cofactor.runs.carry import carry, write_arrivals
from cofactor.runs.config import Config
from cofactor.runs.evaluate import boolean_evaluation, evaluation
from cofactor.runs.fit import view
from cofactor.runs.folder import RunFolder
from cofactor.runs.inputs import Inputs, describe, in_blocks, matched_inputs, read_table, simulated
from cofactor.types import Array, CofactorError, Data


def fit(config: Config, out: Path, *, callbacks: Sequence[Callback] = ()) -> RunFolder:
    """Read this process's clients, run the method with the other processes, and write the run folder.

    One file without --split or --group-by is cut into as many blocks of rows as there are processes.
    """
    engine = Mpi()
    team = engine.processes
    with team.guard("the inputs"):
        config = config.absolute()
        if config.together:
            config = replace(config, split=team.count, by="rows")
        inputs = open_own(config, team)
        method, lines = _prepare(config, inputs, team), _describe(config, inputs)
        folder = _create(out, config, method, lines, team)
        return _run(folder, config, inputs, method, engine=engine, callbacks=callbacks)


def _prepare(config: Config, inputs: Inputs, team: Processes) -> Method:
    """Build the method for the clients of all processes, and refuse what cannot be run."""
    counts = team.exchange("the plan", (len(inputs.data), sum(X.shape[0] for X in inputs.data)))
    clients, rows = (sum(part) for part in zip(*counts))
    with team.guard("the plan"):
        method = make_method(config, inputs, clients=clients)
        private.check(config, method, rows=rows, clients=clients)
        return method


def _create(out: Path, config: Config, method: Method, lines: list[dict[str, Any]], team: Processes) -> RunFolder:
    """Make the run folder; of a private run every process writes what is its own clients' alone."""
    if config.privacy is None:
        lines = _all(team, lines)
        return team.alone("the run folder", lambda: RunFolder.create(out, config, lines))
    told, total = _all(team, private.released(lines)), private.total(method)
    folder = team.alone("the run folder", lambda: RunFolder.create(out, config, told, privacy=total))
    private.describe(folder, lines)
    return folder


def resume(folder: RunFolder, *, callbacks: Sequence[Callback] = ()) -> RunFolder:
    """Go on after the last round that the checkpoints of all processes hold."""
    engine = Mpi()
    team = engine.processes
    with team.guard("the inputs"):
        config = folder.config()
        inputs = open_own(config, team)
        before = {line["client"]: line.get("sha256") for line in folder.inputs()}
        for line in _describe(config, inputs):
            if before.get(line["client"]) != line["sha256"]:
                raise CofactorError(
                    f"{line['path']}: expected the data of {line['client']} that the run began with, found other "
                    "contents, or another number of processes."
                )
        method = _prepare(config, inputs, team)
        return _run(folder, config, inputs, method, engine=engine, callbacks=callbacks)


def open_own(config: Config, team: Processes) -> Inputs:
    """Read the clients of this process and nothing else, and match features with the other processes by name."""
    if len(config.inputs) == 1:
        with team.guard("the inputs"):
            table = read_table(config.inputs[0], config, blocks=True)
            if table.shape[0] < team.count:
                raise CofactorError(
                    f"{config.inputs[0]}: expected at most {table.shape[0]} processes (its rows), found {team.count}."
                )
            make = in_blocks if config.blocked else partial(simulated, take=_load)
            inputs = make(config, table, own=lambda count: _own(count, team))
    else:
        inputs = _files(config, team)
    counts = team.exchange("the clients", (len(inputs.data), sum(X.shape[0] for X in inputs.data)))
    check_sizes(config, rows=sum(rows for _, rows in counts), n_features=inputs.n_features)
    first = sum(clients for clients, _ in counts[: team.here])
    return replace(inputs, data=check_clients(inputs.data, first=first))


def _own(count: int, team: Processes) -> slice:
    """Return which of ``count`` clients are this process's: blocks whose sizes differ by at most one."""
    if count < team.count:
        raise CofactorError(f"expected at most {count} processes (the clients), found {team.count}.")
    ends = np.cumsum([0, *map(len, np.array_split(np.arange(count), team.count))])
    return slice(int(ends[team.here]), int(ends[team.here + 1]))


def _load(X: Data, index: Array) -> Data:
    """Return rows in memory; of a file on disk only these are read."""
    if not arrays.is_held(X):
        return arrays.rows(X, index)
    first, last = int(index[0]), int(index[-1])
    return X.row_block(slice(first, last + 1)) if last - first + 1 == len(index) else X.take(index).load()


def _files(config: Config, team: Processes) -> Inputs:
    """Read this process's files; of the others', names of features are enough."""
    with team.guard("the inputs"):
        own = _own(len(config.inputs), team)
        mine = [read_table(path, config) for path in config.inputs[own]]
    heads = _all(team, [(t.feature_names, t.shape[1], t.source) for t in mine])
    tables = [Table(np.zeros((0, m)), names, source=source) for names, m, source in heads]
    tables[own] = mine
    return matched_inputs(config, tables, own)


def _all(team: Processes, mine: list[Any]) -> list[Any]:
    """Return the lists of all processes as one."""
    return [entry for part in team.exchange("the clients", mine) for entry in part]


def _describe(config: Config, inputs: Inputs) -> list[dict[str, Any]]:
    """Return the lines of this process's clients for the manifest; parts of a file have hashes of their own."""
    if len(config.inputs) > 1:
        return describe(inputs)
    source = config.inputs[0]
    return [
        {"client": name, "path": source, "sha256": _digest(X), "rows": X.shape[0], "features": X.shape[1]}
        for name, X in zip(inputs.names, inputs.data, strict=True)
    ]


def _digest(X: Data) -> str:
    if isinstance(X, Blocks):
        return _digest(X.row_block)
    parts = (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part).reshape(-1).data)
    return digest.hexdigest()


def _run(
    folder: RunFolder,
    config: Config,
    inputs: Inputs,
    method: Method,
    *,
    engine: Mpi,
    callbacks: Sequence[Callback],
) -> RunFolder:
    team = engine.processes
    saved = ProcessCheckpoint(folder.checkpoint.path, team=team).load()
    names = _all(team, inputs.names)
    done = len(saved.history) if saved else 0
    del saved
    team.alone("the run folder", lambda: folder.rewind(done, private=config.privacy is not None))
    log = folder.log_messages(names) if team.first else None

    def watch(t: int, replies: Sequence[Reply]) -> None:
        """Write the ledger; in rounds all processes wait, since none may go on with, or save, what is not in it."""
        if streams(config):
            assert log is not None  # only the server, on process 0, watches a stream
            log(t, replies)
        else:
            team.alone("the ledger", lambda: log and log(t, replies))

    outcome = carry(
        folder,
        config,
        method,
        inputs.data,
        clients=len(names),
        engine=engine,
        watch=watch,
        callbacks=[folder.log_round, *callbacks] if team.first else [],
    )
    team.alone("the arrivals", lambda: write_arrivals(folder, outcome, names))
    for name, X, W in zip(inputs.names, inputs.data, outcome.codes, strict=True):
        folder.write_codes(name, W)
        if config.boolean and not config.privacy:
            folder.write_view(name, view(X, W, outcome.factor))
    if config.privacy:
        private.write_own(folder, inputs.names, inputs.data, outcome, boolean=config.boolean)
    result = None if config.privacy else _evaluation(team, inputs, outcome, boolean=config.boolean)
    team.alone("the factor", lambda: _write(folder, config, inputs, outcome, result))
    return folder


def _write(folder: RunFolder, config: Config, inputs: Inputs, outcome: Run, result: Any) -> None:
    folder.write_factor(outcome.factor, inputs.feature_names, image_shape=config.image_shape)
    if result is None:
        private.conclude(folder, outcome)
        return
    folder.seal()
    folder.write_json("evaluation.json", result)


def _evaluation(team: Processes, inputs: Inputs, outcome: Run, *, boolean: bool) -> dict[str, Any]:
    """Return the errors of the clients of all processes, without their own local fits."""
    data, H = inputs.data, outcome.factor
    if boolean:
        own = boolean_evaluation(data, inputs.names, outcome)
        tallies = team.exchange("the errors", sum((tally(X, W, H) for X, W in zip(data, outcome.codes)), Tally()))
        error = sum(tallies, Tally()).loss
    else:
        own = evaluation(data, inputs.names, outcome, compare=False)
        square = sum(arrays.square(X) for X in data)
        sums = np.sum(team.exchange("the errors", (own["error"] ** 2 * square, square)), axis=0)
        error = float(np.sqrt(sums[0] / sums[1])) if sums[1] > 0 else 0.0
    return {**own, "error": error, "clients": _all(team, own["clients"])}
