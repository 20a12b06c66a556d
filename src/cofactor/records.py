"""What a run folder holds, typed, for its writer and its reader; what is unexpected is one error."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterator
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from cofactor.types import CofactorError

Record = TypeVar("Record")
Check = Callable[[Any, str], Any]
WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


@dataclass(frozen=True)
class Input:
    """One client's data, as the manifest names it; rows and hash are missing in private runs."""

    client: str
    path: str
    features: int
    sha256: str | None = None
    rows: int | None = None


@dataclass(frozen=True)
class PrivacyRecord:
    """``privacy.json``: what a run as a whole costs, with everything that an epsilon means nothing without."""

    private: bool
    epsilon: float | None = None
    delta: float | None = None
    unit: str | None = None
    relation: str | None = None
    accountant: str | None = None
    text: str | None = None
    honest: int = 1


@dataclass(frozen=True)
class Manifest:
    """``manifest.json``: what ran, what a private run will cost, where its ledger ended, the keys that signed."""

    cofactor: str
    created: str
    seed: int
    method: str
    rank: int
    config: dict[str, Any]
    versions: dict[str, Any]
    inputs: list[Input]
    privacy: PrivacyRecord | None = None
    ledger: dict[str, Any] | None = None
    masks: str | None = None
    keys: dict[str, Any] | None = None


@dataclass(frozen=True)
class Line:
    """One line of ``history.jsonl``; losses compare within a stage."""

    round: int
    loss: float | None
    bytes_up: int
    bytes_down: int
    seconds: float
    participants: int
    drift: float | None = None
    epsilon: float | None = None
    stage: int = 0
    moved: float | None = None
    net: float | None = None
    ended: str = ""


@dataclass(frozen=True)
class ClientScore:
    """One client of ``evaluation.json``; of its model ``own_share`` is its own, ``own_shares`` of each component."""

    client: str
    rows: int
    error: float
    rmsd: float | None = None
    local_error: float | None = None
    pooled_error: float | None = None
    own_share: float | None = None
    own_shares: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Part:
    """Training or held-out ratings of ``evaluation.json``; ``ranking`` has precision, recall, NDCG, coverage."""

    part: str
    ratings: int
    rmse: float | None = None
    ranking: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """``evaluation.json``: errors (``match``: components x clients), or cost and remark; what ``shows`` rows; end."""

    rounds: int
    converged: bool
    error: float | None = None
    clients: list[ClientScore] = field(default_factory=list)
    match: list[list[float | None]] | None = None
    pooled_error: float | None = None
    parts: list[Part] = field(default_factory=list)
    privacy: PrivacyRecord | None = None
    remark: str | None = None
    ended: str | None = None
    absent: list[str] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)
    unsure: list[int] = field(default_factory=list)
    undrawn: list[str] = field(default_factory=list)
    shows: list[str] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Passport:
    """One component of ``passports.json``; ``client_shares`` in the order of the clients of ``evaluation.json``."""

    component: int
    clients_found: int
    n_clients: int
    share: float
    stability: float | None = None
    drift: float | None = None
    top_features: list[Any] = field(default_factory=list)
    markers: list[Any] = field(default_factory=list)
    client_shares: list[float | None] = field(default_factory=list)


@dataclass(frozen=True)
class RankScan:
    """``rank.json``: one entry per rank that was tried."""

    ranks: list[int]
    heldout_mean: list[float | None]
    heldout_std: list[float | None]
    training_error: list[float | None]
    seed_stability: list[float | None]
    client_stability: list[float | None]
    suggestion: int
    reason: str


@dataclass(frozen=True)
class Release:
    """One line of ``ledger.jsonl``: an array that left a client, or so many ``clients`` together."""

    client: str
    round: int
    array: str
    shape: list[int]
    dtype: str
    bytes: int
    clip: Any = None
    noise: Any = None
    cost: Any = None
    mechanism: Any = None
    multiplier: Any = None
    clients: int = 1
    masked: bool = False


def plain(value: Any) -> Any:
    """Return a record, or anything else, as JSON knows it: NaN and infinities become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {name: plain(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return None if isinstance(value, float) and not np.isfinite(value) else value


def read_json(path: Path) -> Any:
    """Return what a JSON file holds."""
    return _parse(_text(path), path.name)


def read_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield ``(where, object)`` for every line of a JSON-lines file; blank lines are skipped."""
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            where = f"{path.name}, line {number}"
            yield where, _parse(line, where)


def load(kind: type[Record], path: Path) -> Record:
    """Return the record that a file holds, or as ``list[...]`` those of a JSON list, or of one on each line."""
    if path.suffix != ".jsonl":
        return _check(kind)(read_json(path), path.name)
    each = _check(get_args(kind)[0])
    return [each(line, where) for where, line in read_lines(path)]  # type: ignore[return-value]


def found(value: Any) -> str:
    """Describe a value that was not expected, briefly."""
    names = {dict: "an object", list: f"a list of {len(value)}" if isinstance(value, list) else "", type(None): "null"}
    text = names.get(type(value)) or repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CofactorError(f"{path.name}: expected this file in the run folder {path.parent}, found none.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CofactorError(f"{path.name}: expected a readable UTF-8 file, found: {error}.") from None


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CofactorError(f"{where}: expected JSON, found damaged text ({error}).") from None


def decode(kind: type[Record], value: Any, where: str) -> Record:
    """Return ``value`` as a record of ``kind``, a frozen dataclass; keys it does not name are ignored."""
    value, arguments = _dict(value, where), {}
    for name, check, required in _plan(kind):  # type: ignore[arg-type]
        if name in value:
            arguments[name] = check(value[name], f"{where}: {name}")
        elif required:
            raise CofactorError(f"{where}: expected the key {name!r}, found {', '.join(value) or 'no keys'}.")
    return kind(**arguments)


@cache
def _plan(kind: type) -> list[tuple[str, Check, bool]]:
    """Return name, check and necessity of every field of a record."""
    hints = get_type_hints(kind)
    return [(f.name, _check(hints[f.name]), f.default is f.default_factory is MISSING) for f in fields(kind)]


def _check(hint: Any) -> Check:
    """Return the function that checks and converts one value of a type."""
    arguments = get_args(hint)
    if hint is Any:
        return lambda value, where: value
    if is_dataclass(hint):
        return lambda value, where: decode(hint, value, where)  # type: ignore[arg-type]
    if get_origin(hint) in (Union, types.UnionType):
        inner = _check(next(a for a in arguments if a is not type(None)))
        return lambda value, where: None if value is None else inner(value, where)
    if get_origin(hint) is list:
        each = _check(arguments[0])
        return lambda value, where: _list(value, where, each)
    if get_origin(hint) is dict:
        return _dict
    return lambda value, where: _plain(value, where, hint)


def _list(value: Any, where: str, each: Check) -> list[Any]:
    if not isinstance(value, list):
        raise CofactorError(f"{where}: expected a list, found {found(value)}.")
    return [each(item, f"{where}[{i}]") for i, item in enumerate(value)]


def _dict(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CofactorError(f"{where}: expected an object, found {found(value)}.")
    return value


def _plain(value: Any, where: str, kind: type) -> Any:
    if not isinstance(value, (int, float) if kind is float else kind) or (isinstance(value, bool) and kind is not bool):
        raise CofactorError(f"{where}: expected {WORDS[kind]}, found {found(value)}.")
    if not isinstance(value, int | float) or kind is not float:
        return value
    try:
        return float(value)
    except OverflowError:
        raise CofactorError(f"{where}: expected a number, found one too large for a float.") from None
