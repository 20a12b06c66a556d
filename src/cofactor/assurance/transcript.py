"""The transcript audit: every message against what its method declares, and nothing else may have left.

A schema is a function of the features and the round alone, so a message that fits it has a size that no number of rows
can change; but for sides that are declared as the client's own, such as the number of its rated items. A private
message is more than that: float64 on the grid of 2^-24, weight 1, and every array paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cofactor.method import fits

NUMBER = 8
"""Bytes of the widest number that may be sent."""

Schema = Mapping[str, tuple[int, ...]]


def form_faults(name: str, shape: tuple[int, ...], dtype: str, schema: Schema, *, private: bool) -> list[str]:
    """Return what is wrong with the name, shape or dtype of one array."""
    if name not in schema:
        return [f"{name!r} was not declared"]
    found = []
    if not fits(tuple(shape), tuple(schema[name])):
        found.append(f"{name!r} has shape {tuple(shape)}, declared was {tuple(schema[name])}")
    kind = _kind(dtype)
    if kind is None or kind.kind not in "fiub" or kind.itemsize > NUMBER:
        found.append(f"{name!r} has dtype {dtype}, which is no real number of at most {NUMBER} bytes")
    elif private and kind != np.float64:
        found.append(f"{name!r} has dtype {dtype}, private releases are float64")
    return found


def _kind(dtype: str) -> np.dtype[Any] | None:
    try:
        return np.dtype(dtype)
    except TypeError:
        return None
