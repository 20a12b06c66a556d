"""A run folder as a whole: what the report is made from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cofactor.engines.history import EVENTS, Event
from cofactor.files import resuming
from cofactor.records import (
    Evaluation,
    Line,
    Manifest,
    Passport,
    PrivacyRecord,
    RankScan,
    Release,
    load,
)
from cofactor.select import factor_file
from cofactor.select.markers import SCORES
from cofactor.types import Array, CofactorError


class Factor(NamedTuple):
    """``factor.npz``: the factor (k x m), with names, marker scores (k x m), picture shape, consensus where known."""

    H: Array
    names: list[str]
    image_shape: tuple[int, int] | None = None
    image_order: str = "C"
    scores: Array | None = None
    silhouette: Array | None = None
    clustergram: Array | None = None


@dataclass(frozen=True)
class Folder:
    """Everything in a run folder; the last four are None where their file is missing."""

    path: Path
    manifest: Manifest
    history: list[Line]
    factor: Factor
    evaluation: Evaluation
    ledger: list[Release]
    passports: list[Passport] | None
    rank: RankScan | None
    privacy: PrivacyRecord | None
    events: list[Event] | None = None

    @property
    def withheld(self) -> bool:
        """Whether errors stayed with the clients, as in private runs."""
        return self.privacy is not None and self.evaluation.error is None and not self.evaluation.clients

    @property
    def apart(self) -> bool:
        """Whether nothing is told of single clients: with noise, or where even errors were added up under masks."""
        return self.withheld or (self.manifest.masks is not None and not self.evaluation.clients)

    @property
    def client_names(self) -> list[str]:
        """The clients of the run."""
        return [c.client for c in (self.manifest.inputs if self.apart else self.evaluation.clients)]


def read(path: Path) -> Folder:
    """Read and check a run folder."""
    if not path.is_dir():
        raise CofactorError(f"run: expected a run folder, found {'a file' if path.exists() else 'nothing'} at {path}.")
    for name in ("factor.npz", "evaluation.json"):
        if (path / "manifest.json").exists() and not (path / name).exists():
            raise CofactorError(
                f"{name}: expected this file of a finished run in {path}, found none; {resuming(path)} ends it."
            )
    files = {name: path / f"{name}.json" for name in ("passports", "rank", "privacy")}
    there = {name for name, file in files.items() if file.exists()}
    folder = Folder(
        path,
        load(Manifest, path / "manifest.json"),
        load(list[Line], path / "history.jsonl"),
        read_factor(path / "factor.npz"),
        load(Evaluation, path / "evaluation.json"),
        load(list[Release], path / "ledger.jsonl"),
        load(list[Passport], files["passports"]) if "passports" in there else None,
        load(RankScan, files["rank"]) if "rank" in there else None,
        load(PrivacyRecord, files["privacy"]) if "privacy" in there else None,
        load(list[Event], path / EVENTS) if (path / EVENTS).exists() else None,
    )
    _check_sizes(folder)
    return folder


def read_factor(path: Path) -> Factor:
    """Read and check ``factor.npz``."""
    if not path.is_file():
        raise CofactorError(f"{path.name}: expected this file in the run folder {path.parent}, found none.")
    arrays = factor_file.read(path)
    H = arrays["factor"]
    if "biases" in arrays:  # ratings: biases and mean lie below the components
        H = H[: int(arrays["rank"])]
    names = arrays.get("titles", arrays["feature_names"])
    shape, order = _image(arrays, H.shape[1], path.name)
    scores = arrays.get(SCORES)
    silhouette, clustergram = _consensus(arrays, len(H), path.name)
    return Factor(H.astype(np.float64), [str(name) for name in names], shape, order, scores, silhouette, clustergram)


def _consensus(arrays: dict[str, Array], k: int, where: str) -> tuple[Array | None, Array | None]:
    """Return what a consensus says of its components: how far each stands apart, and distances between all starts."""
    silhouette, clustergram = arrays.get("silhouette"), arrays.get("clustergram")
    if silhouette is None or clustergram is None:
        return None, None
    if silhouette.shape != (k,) or clustergram.ndim != 2 or not np.isfinite(clustergram).all():
        raise CofactorError(
            f"{where}: expected a silhouette of each of {k} components, found shape {silhouette.shape}."
        )
    return silhouette, clustergram


def _image(arrays: dict[str, Array], m: int, where: str) -> tuple[tuple[int, int] | None, str]:
    order = str(arrays.get("image_order", "C"))
    if "image_shape" not in arrays:
        return None, order
    shape = [int(n) for n in np.atleast_1d(arrays["image_shape"])]
    if len(shape) != 2 or math.prod(shape) != m or min(shape) < 1:
        raise CofactorError(f"{where}: expected image_shape as two numbers with product {m}, found {shape}.")
    if order not in ("C", "F"):
        raise CofactorError(f"{where}: expected image_order 'C' or 'F', found {order!r}.")
    return (shape[0], shape[1]), order


def _check_sizes(folder: Folder) -> None:
    """Check that the files agree with each other."""
    k, c = len(folder.factor.H), len(folder.evaluation.clients)
    if not folder.history:
        raise CofactorError("history.jsonl: expected at least one round, found none.")
    if not folder.apart and not c:
        raise CofactorError("evaluation.json: expected at least one client, found none.")
    if not folder.apart and folder.evaluation.error is None:  # under masks somebody may have lied
        raise CofactorError("evaluation.json: expected the key 'error', found none.")
    for i, given in enumerate(folder.manifest.inputs):
        there = folder.apart or not given.path  # data of clients elsewhere
        if not there and (given.rows is None or given.sha256 is None):
            raise CofactorError(f"manifest.json: inputs[{i}]: expected the keys 'rows' and 'sha256', found no such.")
    match = folder.evaluation.match
    if match is not None and (len(match) != k or any(len(row) != c for row in match)):
        widths = sorted({len(row) for row in match})
        raise CofactorError(f"evaluation.json: expected match as {k} x {c}, found {len(match)} rows of {widths}.")
    for passport in folder.passports or []:
        if not 0 <= passport.component < k:
            raise CofactorError(f"passports.json: expected components 0 to {k - 1}, found {passport.component}.")
        if not all(
            isinstance(p, list) and len(p) == 2 and isinstance(p[1], int | float) for p in passport.top_features
        ):
            raise CofactorError("passports.json: expected top_features as [name, weight] pairs, found others.")
    scan = folder.rank
    for name, values in vars(scan).items() if scan else ():
        if isinstance(values, list) and (not values or len(values) != len(scan.ranks)):  # type: ignore[union-attr]
            raise CofactorError(f"rank.json: expected one {name} per rank, found {len(values)}.")
