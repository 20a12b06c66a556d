"""Fit, resume, transform and evaluate over files."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cofactor.combine.align import Lap
from cofactor.engines.history import Stop
from cofactor.engines.inline import check_clients
from cofactor.engines.rounds import Callback, Run, run
from cofactor.local import arrays
from cofactor.local.columns import groups
from cofactor.method import Method, rng
from cofactor.methods import catalog
from cofactor.methods.alone import Alone
from cofactor.methods.summed import Summed
from cofactor.metrics import pooled_error, relative_error, rmsd
from cofactor.runs.config import Config
from cofactor.runs.folder import RunFolder
from cofactor.runs.inputs import Inputs, check_unchanged, describe, open_inputs
from cofactor.select import Passport, RankScan, passports, select_rank
from cofactor.select.passports import LAST_ROUNDS
from cofactor.types import Array, CofactorError, Data

LOCAL_CELLS = 2 * 10**8
"""Clients are compared with their own local fit up to this many cells in all; beyond, it would double the work."""


def fit(config: Config, out: Path, *, callbacks: Sequence[Callback] = ()) -> RunFolder:
    """Read the inputs, run the method, and write the run folder."""
    config = config.absolute()
    inputs = open_inputs(config)
    folder = RunFolder.create(out, config, describe(inputs))
    return _run(folder, config, inputs, callbacks)


def resume(out: Path, *, callbacks: Sequence[Callback] = ()) -> RunFolder:
    """Go on after the last round that the folder's checkpoint holds; a finished run stays as it is."""
    folder = RunFolder.open(out)
    if (folder.path / "evaluation.json").exists():
        return folder
    config = folder.config()
    inputs = open_inputs(config)
    check_unchanged(inputs, folder.manifest()["inputs"])
    return _run(folder, config, inputs, callbacks)


def make_method(config: Config, inputs: Inputs) -> Method:
    """Build the method; clients that lack features need one that can leave them out."""
    options = dict(config.options)
    if inputs.known is not None:
        if config.method != "exact":
            raise CofactorError(
                f"method {config.method!r} needs the same features at every client; "
                "use --features intersection, or --method exact with --features union."
            )
        options["groups"] = groups(inputs.known, inputs.n_features)
    return catalog.make(config.method, config.rank, **options)


def _run(folder: RunFolder, config: Config, inputs: Inputs, callbacks: Sequence[Callback]) -> RunFolder:
    method, data = make_method(config, inputs), check_clients(inputs.data)
    rows = sum(X.shape[0] for X in data)
    if config.rank > min(rows, inputs.n_features):
        raise CofactorError(
            f"rank: expected at most {min(rows, inputs.n_features)} (the smaller of {rows} rows and "
            f"{inputs.n_features} features), found {config.rank}."
        )
    saved = folder.checkpoint.load()
    folder.rewind(len(saved.history) if saved else 0)
    factors: deque[Array] = deque(maxlen=LAST_ROUNDS + 1)
    outcome = run(
        method,
        data,
        rounds=config.rounds,
        seed=config.seed,
        participation=config.participation,
        stop=Stop(config.tol),
        checkpoint=folder.checkpoint,
        watch=folder.log_messages(inputs.names),
        callbacks=[folder.log_round, lambda line, shared: factors.append(method.factor(shared)), *callbacks],
    )
    folder.write_factor(outcome.factor, inputs.feature_names)
    for name, W in zip(inputs.names, outcome.codes, strict=True):
        folder.write_codes(name, W)
    if not config.boolean and _is_small(data):
        found = passports(
            data,
            outcome.factor,
            outcome.codes,
            history_factors=list(factors),
            feature_names=inputs.feature_names,
            seed=config.seed,
        )
        folder.write_json("passports.json", [_passport(p) for p in found])
    folder.write_json("evaluation.json", evaluation(data, inputs.names, outcome, seed=config.seed))
    return folder


def _is_small(data: list[Data]) -> bool:
    """Whether comparing clients with their own local fits is worth its time."""
    cells = sum(X.shape[0] * X.shape[1] for X in data)
    return cells <= LOCAL_CELLS and not any(map(arrays.is_held, data))


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


def evaluation(data: list[Data], names: Sequence[str], outcome: Run, *, seed: int = 0) -> dict[str, Any]:
    """Return the errors of every client, next to the client's own local fit of the same rank where that is cheap."""
    H, codes = outcome.factor, outcome.codes
    compare = _is_small(data)
    own = [_own_fit(X, len(H), rng(seed, j, -1)) if compare else None for j, X in enumerate(data)]
    clients = [
        {
            "client": name,
            "rows": X.shape[0],
            "error": relative_error(X, W, H),
            "rmsd": rmsd(X, W, H),
            "local_error": fit[0] if fit else None,
            "pooled_error": None,
        }
        for name, X, W, fit in zip(names, data, codes, own, strict=True)
    ]
    match = np.array([_cosines(H, fit[1]) for fit in own if fit]).T if compare else None
    return {
        "error": pooled_error(data, codes, H),
        "rounds": len(outcome.history),
        "converged": outcome.converged,
        "clients": clients,
        "match": match,
    }


def _own_fit(X: Data, rank: int, generator: np.random.Generator) -> tuple[float, Array] | None:
    """Return the error and the factor of a client's own fit; None where it has too few rows for one."""
    if X.shape[0] <= rank:
        return None
    W, H = Alone(Summed(rank))(X, rank, generator)
    return relative_error(X, W, H), H


def _cosines(H: Array, own: Array) -> Array:
    """Cosine of every shared component with the client's own component that it matches."""
    return np.einsum("km,km->k", H, Lap()(H, own) @ own)


def transform(folder: RunFolder, path: Path, *, layer: str | None = None) -> tuple[Array, float]:
    """Return the codes of new rows for a run's factor, and their relative error; features are matched by name."""
    from cofactor.data import harmonise, load
    from cofactor.data.formats.table import Table

    H, names = folder.factor()
    table = load.read(path, layer=layer)
    if table.feature_names is not None and names != [f"feature{i}" for i in range(len(names))]:
        reference = Table(np.zeros((0, len(names))), names, None, {}, str(folder.path))
        matched = harmonise.match([reference, table], how="same")
        X = matched.select(table.X, 1)
    else:
        X = table.X
    X = arrays.check(X, client=path.name)
    if X.shape[1] != H.shape[1]:
        raise CofactorError(f"{path}: expected {H.shape[1]} features like the factor, found {X.shape[1]}.")
    config = folder.config()
    W = catalog.make(config.method, config.rank).refit(X, H)
    return W, relative_error(X, W, H)
