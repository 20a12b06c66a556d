"""The public part of a model as one file: factor, names, preparation, scores, settings; nothing of any row."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cofactor.data.preparation import Preparation
from cofactor.estimators.families import family_of
from cofactor.files import atomic, undamaged
from cofactor.privacy.accountant import Unit
from cofactor.privacy.allowance import Privacy
from cofactor.select.markers import SCORES
from cofactor.types import Array, CofactorError

UNNAMED = "feature"
"""Begins the names of features without names, as run folders write them."""
SETTINGS = "settings"
WHAT = "the public part of a model"
SHOWN = ("epsilon", "delta", "clip", "curious")
"""What a budget tells everybody: neither its ledger, nor the seed that would take its noise away."""


@dataclass(frozen=True, eq=False)
class Saved:
    """A factor (k x m), the names of its features, and of those before preparation, and what else all may know.

    ``settings`` say how the model was made, in plain values; None for a file that does not say.
    """

    factor: Array
    features: list[str] | None = None
    inputs: list[str] | None = None
    width: int = 0
    preparation: Preparation = field(default_factory=Preparation)
    scores: Array | None = None
    settings: dict[str, Any] | None = None


def arrays(held: Saved) -> dict[str, Array]:
    """Return the arrays of the file; what is None is left out."""
    named = {"feature_names": held.features, "input_names": held.inputs if held.preparation else None}
    found: dict[str, Any] = {name: np.array(value) for name, value in named.items() if value is not None}
    found |= {"input_width": np.array(held.width)} if held.preparation else {}
    found |= {} if held.scores is None else {SCORES: held.scores}
    found |= {} if held.settings is None else told(held.settings)
    return {"factor": held.factor, **found, **held.preparation.arrays()}


def told(settings: dict[str, Any]) -> dict[str, Array]:
    """Return settings as an array of the file; with ``counted``, features without names have been given such."""
    return {SETTINGS: np.array(json.dumps(settings))}


def of_run(
    kind: str, method: str, options: dict[str, Any], taken: dict[str, Any], *, column: str | None, privacy: Any
) -> dict[str, Array]:
    """Return the settings of a run's factor as an array of its file; ratings say what they need by themselves."""
    whose = family_of(kind)
    if whose in (None, "FederatedMF"):
        return {}
    made = {"method": method, "options": plain("options", options)}
    found = {"estimator": whose, **made, "column": column, "parameters": {**made, **taken}, "counted": True}
    return told(found | ({} if privacy is None else {"privacy": budget(privacy)}))


def store(path: Path, found: dict[str, Array]) -> None:
    """Write arrays as npz, without pickles."""
    if not path.parent.is_dir():
        raise CofactorError(f"{path}: expected a folder {path.parent} to write into, found none.")
    with atomic(path) as file:
        np.savez(file, **found)  # type: ignore[arg-type]


def stored(path: Path, what: str = WHAT) -> dict[str, Array]:
    """Read them, or say what else the file is."""
    try:
        with undamaged(path, what), np.load(path, allow_pickle=False) as file:
            found = dict(file)
    except FileNotFoundError:
        raise CofactorError(f"{path}: expected {what}, found no such file.") from None
    if others := [name for name, a in found.items() if not isinstance(a, np.ndarray)]:
        raise CofactorError(f"{path}: expected {what}, found a file of others: {', '.join(others[:3])}.")
    return found


def write(path: Path, held: Saved) -> None:
    """Write the file."""
    store(path, arrays(held))


def read(path: Path) -> Saved:
    """Read it, or the factor.npz of a run; or say what else the file is."""
    found = stored(path)
    with undamaged(path, WHAT):
        return _read(path, found)


def _read(path: Path, found: dict[str, Array]) -> Saved:
    H = found.get("factor")
    if H is None or H.ndim != 2 or 0 in H.shape or "biases" in found:
        what = "a model of ratings: use FederatedMF.load" if "biases" in found else ", ".join(found) or "nothing"
        raise CofactorError(f"{path}: expected a factor (k x m), found {what}.")
    settings = _settings(str(found[SETTINGS])) if SETTINGS in found else None
    counted = settings is None or settings.get("counted", False)
    names, inputs = (_names(found.get(name), counted=counted) for name in ("feature_names", "input_names"))
    if names is not None and len(names) != H.shape[1]:
        raise CofactorError(f"{path}: expected {H.shape[1]} feature names, found {len(names)}.")
    width = int(found["input_width"]) if "input_width" in found else H.shape[1]
    preparation, scores = Preparation.from_arrays(found), found.get(SCORES)
    if _left(preparation, width) != H.shape[1] or (scores is not None and scores.shape != H.shape):
        raise CofactorError(f"{path}: expected a preparation and scores of {H.shape[1]} features, found others.")
    return Saved(H, names, inputs or names, width, preparation, scores, settings)


def _settings(text: str) -> dict[str, Any]:
    """Return what a file says of how it was made: plain values, whose names :meth:`Kept.load` looks at."""
    found = json.loads(text)
    if not isinstance(found, dict) or not isinstance(found.get("parameters", {}), dict):
        raise ValueError("its settings are no table")
    return found


def _left(preparation: Preparation, width: int) -> int:
    """Return how many of so many features a preparation leaves; -1 where it is one of others."""
    for step in preparation.steps:
        if step.keeps is not None:
            if step.keeps.shape != (width,) or step.keeps.dtype != bool:
                return -1
            width = int(step.keeps.sum())
    return width


def _names(found: Array | None, *, counted: bool) -> list[str] | None:
    """Return names of features; those that a run folder has counted are none."""
    if found is None:
        return None
    names = [str(name) for name in found]
    return None if counted and names == [f"{UNNAMED}{i}" for i in range(len(names))] else names


def plain(name: str, value: Any) -> Any:
    """Return a setting as JSON holds it, or say which is none."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(key): plain(f"{name}: {key}", each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(name, each) for each in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise CofactorError(f"{name}: expected plain values to save (numbers, texts), found {type(value).__name__}.")


def budget(privacy: Privacy | None) -> dict[str, Any] | None:
    """Return what everybody may know of a budget."""
    if privacy is None:
        return None
    return {**{name: plain(name, vars(privacy)[name]) for name in SHOWN}, "unit": str(Unit(privacy.unit).value)}


def allowed(found: dict[str, Any] | None) -> Privacy | None:
    """Return the budget that they say; who wrote the file may set neither a seed of the noise nor a ledger."""
    if found is None:
        return None
    if others := set(found) - {*SHOWN, "unit"}:
        raise CofactorError(f"expected of a budget {', '.join(SHOWN)} and unit, found {', '.join(sorted(others))}.")
    return Privacy(**found)
