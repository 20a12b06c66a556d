"""Private runs on files: what is checked before anything is released, and what is written at the end.

Only releases look like releases. What a client computes from its own rows without noise, such as its error, its number
of rows or the hash of its file, goes into that client's own folder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cofactor.boolean import tally
from cofactor.engines.inline import Inline
from cofactor.engines.rounds import Engine, Run
from cofactor.engines.secure import NOT_ADDITIVE, Secure
from cofactor.method import Method
from cofactor.metrics import relative_error, rmsd
from cofactor.privacy.accountant import Spend, Unit
from cofactor.privacy.errors import PrivacyError
from cofactor.privacy.plan import Private
from cofactor.privacy.secure_sum.messages import Terms
from cofactor.runs.config import Config
from cofactor.runs.folder import RunFolder
from cofactor.types import Data

RELEASED = ("client", "path", "features")


def participants(config: Config, clients: int) -> int:
    """Return how many clients take part in a round."""
    return max(1, round(config.participation * clients))


def carrier(config: Config, engine: Engine | None = None) -> Engine | None:
    """Return the engine, under masks if sums are to be secure."""
    return Secure(engine or Inline()) if config.secure else engine


def check(config: Config, method: Method, *, rows: int, clients: int) -> None:
    """Refuse a run that its plan, its number of rows or secure summation does not allow, before anything is written."""
    if config.secure:
        if not method.additive:
            raise PrivacyError(NOT_ADDITIVE)
        Terms(b"", tuple(range(participants(config, clients))), 1)  # enough clients?
    if isinstance(method, Private):
        n = clients if method.plan.privacy.unit is Unit.CLIENT else rows
        method.plan.ledger(len(method.plan.shares), n)


def total(method: Method) -> dict[str, Any] | None:
    """Return what the whole run will cost, for the manifest; None without noise."""
    return record(method.plan.total()) if isinstance(method, Private) else None


def record(spend: Spend) -> dict[str, Any]:
    """Return a spend with everything that an epsilon means nothing without."""
    return {
        "private": spend.private,
        "epsilon": spend.epsilon if math.isfinite(spend.epsilon) else None,
        "delta": spend.delta,
        "unit": str(spend.unit),
        "relation": spend.relation,
        "accountant": spend.accountant,
        "text": str(spend),
    }


def describe(folder: RunFolder, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write rows and hash of each client's data into that client's own folder."""
    for line in lines:
        folder.write_own(line["client"], "input.json", {n: v for n, v in line.items() if n not in RELEASED})


def released(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what of the clients' data the manifest of a private run may say."""
    return [{name: line[name] for name in RELEASED} for line in lines]


def write_own(folder: RunFolder, names: Sequence[str], data: Sequence[Data], outcome: Run, *, boolean: bool) -> None:
    """Write the error of every client into that client's own folder."""
    for name, X, W in zip(names, data, outcome.codes, strict=True):
        if boolean:
            count = tally(X, W, outcome.factor)
            errors = {"error": count.loss, "rmsd": float(np.sqrt(count.error / max(count.cells, 1)))}
        else:
            errors = {"error": relative_error(X, W, outcome.factor), "rmsd": rmsd(X, W, outcome.factor)}
        folder.write_own(name, "evaluation.json", {"client": name, "rows": X.shape[0], **errors})


def evaluation(outcome: Run) -> dict[str, Any]:
    """Return what a private run says of itself: rounds, and what they cost."""
    assert outcome.ledger is not None
    return {"rounds": len(outcome.history), "converged": outcome.converged, **record(outcome.ledger.spend())}


def conclude(folder: RunFolder, outcome: Run) -> None:
    """End a private run: what it cost, and no checkpoint, which holds states of clients."""
    result = evaluation(outcome)
    folder.write_json("privacy.json", {name: v for name, v in result.items() if name not in ("rounds", "converged")})
    folder.seal()
    folder.write_json("evaluation.json", result)
    for file in folder.path.glob("checkpoint*.npz"):
        file.unlink()
