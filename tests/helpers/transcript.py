"""One message against what its method declares: nothing else may have left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cofactor.assurance.transcript import NUMBER, Schema, form_faults
from cofactor.engines.contract import message_bytes
from cofactor.privacy.accountant import Cost
from cofactor.privacy.grid import STEP
from cofactor.types import Message


def byte_bound(schema: Schema) -> int:
    """Return the most bytes that a message may have: eight for every number, and eight for its weight."""
    return NUMBER * (1 + sum(math.prod(shape) for shape in schema.values()))


def faults(message: Message, schema: Schema, costs: Mapping[str, Cost] | None = None) -> list[str]:
    """Return what is wrong with a message; with ``costs`` it is a private one, which must have paid exactly these."""
    found = [
        fault
        for name, a in message.arrays.items()
        for fault in form_faults(name, np.shape(a), np.asarray(a).dtype.name, schema, private=costs is not None)
    ]
    found += [f"{name!r} was declared and not sent" for name in schema if name not in message.arrays]
    if message_bytes(message) > byte_bound(schema):
        found.append(f"{message_bytes(message)} bytes were sent, at most {byte_bound(schema)} were declared")
    if costs is None:
        return found
    found += [f"{name!r} is not on the grid of 2^-24" for name, a in message.arrays.items() if not _is_on_grid(a)]
    if message.weight != 1.0:
        found.append(f"the weight is {message.weight:g} and not 1: it tells of the rows")
    paid = {name: release.cost for name, release in message.cost.items()}
    found += [
        f"{name!r} costs {costs.get(name)} and has paid {paid.get(name)}"
        for name in message.arrays
        if paid.get(name) is None or paid[name] != costs.get(name)
    ]
    return found


def _is_on_grid(a: Any) -> bool:
    if np.asarray(a).dtype.kind not in "fiub":
        return False
    steps = np.asarray(a, dtype=np.float64) / STEP
    return bool(np.isfinite(steps).all() and (steps == np.rint(steps)).all())
