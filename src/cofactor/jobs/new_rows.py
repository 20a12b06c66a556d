"""New rows for a finished run: their codes, from the factor alone, on the machine that holds them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cofactor import kinds
from cofactor.data import load
from cofactor.data.formats.table import Table, need
from cofactor.data.harmonise import onto
from cofactor.data.preparation import Preparation
from cofactor.estimators import saved
from cofactor.estimators.annotate import annotate
from cofactor.files import atomic, undamaged
from cofactor.jobs import weighing
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.preparing import NAMES
from cofactor.jobs.rated_files import in_places
from cofactor.jobs.reading import read_table
from cofactor.local import apart
from cofactor.method import Method
from cofactor.methods.build import Facts, build
from cofactor.select.markers import MARKED, SCORES, Marker, table
from cofactor.types import Array, CofactorError, Data, unknown

if TYPE_CHECKING:
    from cofactor.estimators.mf import FederatedMF


class NewRows(NamedTuple):
    """Codes of new rows (n x k), their relative error, and their names, where they have some."""

    codes: Array
    error: float
    rows: list[str] | None = None


def transform(folder: RunFolder, path: Path, *, layer: str | None = None, client: str | None = None) -> NewRows:
    """Return the codes of new rows for a run's factor; they are prepared as its own, and features matched by name.

    Rows of a known ``client`` have those of its own factor ``H + V_j``, where its own part is on this machine.
    """
    H, names = folder.factor()
    config = folder.config()
    method, kind = method_of(config, len(folder.manifest_record().inputs)), kinds.named(config.kind)
    own = None if client is None else _own_part(folder, client, method)
    rows: list[str] | None
    if kind.name == "ratings":
        _, rows, X = ratings_of(folder, path)
    else:
        public = folder.public()  # where a run has steps, they are with its factor
        with undamaged(folder.factor_file):
            steps = Preparation.from_arrays(public)
            known = [str(name) for name in public[NAMES]] if steps else names
        aside: dict[str, Any] = dict.fromkeys(("group_by", "label", "split", "leave_out", "row_weights"))
        if path.suffix.lower() not in weighing.LAYERED:  # has no layer of weights: every cell counts that is not NaN
            aside["cell_weights"] = None
        plain = replace(config, layer=layer or config.layer, **aside)
        read = read_table(str(path), plain)
        X, rows = _over(read, known, config), read.row_names
        X = steps(kinds.check_one(steps.takes, X, path.name, known)) if steps else X
    kind = kinds.named(method.traits.kind)
    X = kinds.check_one(kind, X, path.name, names)
    if own is not None:
        W = apart.codes(X, H, own, method.traits.apart or 0.0)
        return NewRows(W, kind.score(kind.tally(None, X, W, H + own)).error, rows)
    W = method.refit(X, H)
    return NewRows(W, kind.score(kind.tally(method, X, W, H)).error, rows)


def columns(folder: RunFolder) -> list[str] | None:
    """Return the names of the columns of codes, where not all are components: that of the row of ones is a bias."""
    config = folder.config()
    public = kinds.named(config.kind).public
    if public is None:
        return None
    return ["user_bias" if name == "one" else name for name in public(method_of(config, 1))[0]]


def spare(folder: RunFolder, out: Path, *read: Path, own: str = "") -> None:
    """Refuse to write over data that are read, inputs of the run, and its files: there may be no other copy of them.

    ``own`` is the file of the run that may be written anew.
    """
    home, place = folder.path.resolve(), out.resolve()
    if out.exists() and home in place.parents and place != home / own:
        raise CofactorError(f"{out}: expected a new file, found one of the run; choose another --out.")
    for path in (*read, *(Path(line.path) for line in folder.manifest_record().inputs if line.path)):
        if out.exists() and path.exists() and out.samefile(path):
            raise CofactorError(f"{out}: expected a file to write to, found data that are read; choose another --out.")


def _own_part(folder: RunFolder, client: str, method: Method) -> Array:
    """Return what a client adds to the factor for itself, or say why there is nothing."""
    if method.traits.apart is None:
        raise CofactorError("--client: expected a run of shared-own, whose clients have parts of their own.")
    names = [line.client for line in folder.manifest_record().inputs]
    if client not in names:
        raise unknown("client", client, names)
    return folder.client(client).own()


def annotate_file(folder: RunFolder, path: Path, out: Path, found: NewRows) -> None:
    """Write an h5ad file again with codes, factor, marker scores and facts in it, where scanpy looks for them."""
    if path.suffix.lower() != ".h5ad":
        raise CofactorError(
            f"{out}: expected new rows in an h5ad file to write one, found {path.name}; use .csv, .parquet or .npy."
        )
    anndata = need("anndata", "bio", path=path)
    held, public, config = anndata.read_h5ad(path), folder.public(), folder.config()
    facts: dict[str, Any] = {"method": config.method, "n_components": config.rank, "prepare": config.prepare or ""}
    facts |= {"cofactor": folder.manifest_record().cofactor} | ({} if config.privacy else {"error": found.error})
    names = [str(name) for name in public["feature_names"]]
    more: Any = {"facts": facts, "scores": public.get(SCORES), "clusters": config.kind == "clusters"}
    annotate(held, found.codes, public["factor"], names, **more)
    with atomic(out) as file:  # by its name: HDF5 opens what it writes itself
        held.write_h5ad(file.name)


def _over(table: Table, names: list[str], config: Config) -> Data:
    """Return rows over the features of a run; without names by position."""
    unnamed = names == [f"feature{i}" for i in range(len(names))]
    aside = {name for name in (config.group_by, config.label, config.row_weights, *config.left_out) if name}
    X = table.X
    if not unnamed:
        some = config.features == "intersection"
        X = onto(table, names, lacking=True, others=some, aside=aside, whose="the run")
        known = set(table.feature_names or names)
        missing = [name for name in names if name not in known]
        if missing and config.features == "same":  # all clients of the run had them
            said = f"{table.source}: {len(missing)} of the {len(names)} features of the run are not there"
            warnings.warn(f"{said} ({missing[0]!r}, ...): codes are found without them.", UserWarning, stacklevel=2)
    if X.shape[1] != len(names):
        raise CofactorError(f"{table.source}: expected {len(names)} features like the run, found {X.shape[1]}.")
    return X


def method_of(config: Config, clients: int) -> Method:
    """Build the method of a run without its data; blocks of one matrix have the codes of ``exact``."""
    name = "exact" if config.kind == "blocks" else config.method
    options = {} if config.kind == "blocks" else config.method_options
    return build(name, config.rank, config.plan, Facts(clients, 1, 1), options)[0]


def public(config: Config) -> dict[str, Array]:
    """Return how a run finds codes, as an array of its factor's file: what the estimator needs that loads it."""
    told = {"features": config.features, "layer": config.layer}
    return saved.of_run(
        config.kind, config.method, config.method_options, told, column=config.group_by, privacy=config.privacy
    )


def markers(folder: RunFolder, top: int) -> list[Marker]:
    """Return the best features of every component of a run by their marker score, or say why there are none."""
    public, config = folder.public(), folder.config()
    if SCORES in public:
        return table(public[SCORES], public["factor"], [str(name) for name in public["feature_names"]], top=top)
    if config.privacy is not None:
        why = "it is private, and markers need sums over all rows, which would leave without noise"
    elif config.kind not in MARKED:
        why = f"they are there for non-negative numbers, not for {kinds.named(config.kind).called}"
    else:
        why = "its features have no names"
    raise CofactorError(f"{folder.path}: has no markers: {why}.")


def public_ratings(folder: RunFolder) -> FederatedMF:
    """Return the public model of a run on ratings."""
    config = folder.config()
    if config.kind != "ratings":
        raise CofactorError(f"{folder.path}: expected a run on ratings, found one of method {config.method!r}.")
    from cofactor.estimators.mf import FederatedMF  # with scikit-learn and pandas: a second of every command

    return FederatedMF.load(folder.factor_file)


def ratings_of(folder: RunFolder, path: Path) -> tuple[FederatedMF, list[str], Any]:
    """Return the public model, and users and ratings of a file; items that the run does not know say nothing."""
    model = public_ratings(folder)
    table = load.read_ratings(path, duplicates=folder.config().duplicates)
    place = {str(name): i for i, name in enumerate(model.items_)}
    return model, table.row_names or [], in_places(table, place)
