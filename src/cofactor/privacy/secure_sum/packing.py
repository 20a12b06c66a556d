"""A method's message as one vector: the weight first, then its arrays in the order of the schema."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from cofactor.privacy.errors import DtypeError, NotFiniteError, ShapeError, WeightError
from cofactor.types import Array, Message

Schema = Mapping[str, tuple[int, ...]]


def size(schema: Schema) -> int:
    """Return the length of the vector."""
    return 1 + sum(math.prod(shape) for shape in schema.values())


def pack(message: Message, schema: Schema) -> Array:
    """Return ``[weight, arrays...]``; refuses other names, shapes or dtypes, and weights below zero."""
    if not math.isfinite(message.weight):
        raise NotFiniteError(f"a finite weight was expected. Found {message.weight}.")
    if message.weight < 0:
        raise WeightError(f"a weight of at least 0 was expected. Found {message.weight}.")
    if set(message.arrays) != set(schema):
        raise ShapeError(f"arrays {sorted(schema)} were expected. Found {sorted(message.arrays)}.")
    parts = [np.array([message.weight], dtype=np.float64)]
    for name, shape in schema.items():
        a = np.asarray(message.arrays[name])
        if a.shape != tuple(shape):
            raise ShapeError(f"array {name!r} of shape {tuple(shape)} was expected. Found {a.shape}.")
        if a.dtype.kind not in "fiub":
            raise DtypeError(f"array {name!r} must hold real numbers. Found dtype {a.dtype}.")
        parts.append(a.astype(np.float64).ravel())
    return np.concatenate(parts)


def unpack(vector: Array, schema: Schema) -> Message:
    """Return the message of a vector, or of a sum of vectors."""
    if vector.shape != (size(schema),):
        raise ShapeError(f"a vector of {size(schema)} values was expected. Found shape {vector.shape}.")
    arrays, at = {}, 1
    for name, shape in schema.items():
        arrays[name] = vector[at : at + math.prod(shape)].reshape(shape)
        at += math.prod(shape)
    return Message(arrays, float(vector[0]))
