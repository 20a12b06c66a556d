"""Before a run: which features the clients have in common, found from salted hashes of their names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cofactor.data.harmonise import check_linked
from cofactor.engines.flare_format import FormatError
from cofactor.types import Array, DataError

DTYPES = ("<f4", "<f8", "|b1", "|u1", "|i1", "<i8", "<i4")
"""What data may be."""
MOST = 1 << 48
"""Rows or features that anybody has."""


class Said(NamedTuple):
    """What a client says of itself before a run; rows are None where they are nobody's business."""

    features: int
    dtype: str
    hashes: Array | None
    rows: int | None
    version: str
    keys: bool = False

    @classmethod
    def read(cls, found: Any) -> Said:
        """Check what a client said."""
        match found:
            case {"features": int(m), "dtype": str(dtype), "hashes": hashes, "rows": int() | None as rows, **rest}:
                named = isinstance(hashes, np.ndarray) and hashes.shape == (m,) and hashes.dtype == "<u8"
                fits = (hashes is None or named) and 1 <= m <= MOST and dtype in DTYPES and 0 <= (rows or 0) <= MOST
                match rest:
                    case {"version": str(version), "keys": bool(keys), **more} if fits and not more:
                        return cls(m, dtype, hashes, rows, version, keys)
        raise FormatError("expected what a client is like.")

    def plain(self) -> dict[str, Any]:
        """Return what can be sent."""
        return self._asdict()


class Common(NamedTuple):
    """The features of a run (m of them), and for every client where its columns are.

    Feature i is column ``columns[j][i]`` of client j; in a union, column i of client j is feature ``columns[j][i]``.
    """

    features: int
    columns: dict[int, Array]
    union: bool


def hashes(names: Sequence[str] | None, salt: str) -> Array | None:
    """Return 64 bits of every name; without the salt of the federation they tell nothing."""
    if names is None:
        return None
    found = [hashlib.blake2b(name.encode(), digest_size=8, key=salt.encode()[:64]).digest() for name in names]
    return np.frombuffer(b"".join(found), "<u8")


def common(said: Mapping[int, Said], how: str, names: Sequence[str]) -> Common:
    """Match features by their hashes: the same, those that all have, those that any has, or by position."""
    tables = {j: one.hashes for j, one in said.items()}
    if how == "position" or all(one is None for one in tables.values()):
        return _by_position(said, names)
    for j, one in tables.items():
        if one is None or len(np.unique(one)) < len(one):
            raise DataError(f"client {names[j]}: expected feature names, each one once; found none, or one twice.")
    sets = [set(one.tolist()) for one in tables.values() if one is not None]
    shared = set.intersection(*sets)
    whole = set.union(*sets)
    if how == "same" and len(shared) < len(whole):
        raise DataError(
            f"expected the same features at every client, found {len(shared)} of {len(whole)} that all have; "
            'set features = "intersection" or "union".'
        )
    if not shared and how != "union":
        raise DataError("expected features that all clients have, found none.")
    order = list(dict.fromkeys(h for one in tables.values() if one is not None for h in one.tolist()))
    if how != "union":
        order = [h for h in order if h in shared]
    place = {h: i for i, h in enumerate(order)}
    columns = {}
    for j, one in tables.items():
        assert one is not None
        if how == "union":
            columns[j] = np.array([place[h] for h in one.tolist()])
        else:
            own = {h: i for i, h in enumerate(one.tolist())}
            columns[j] = np.array([own[h] for h in order])
    if how == "union":
        check_linked(list(columns.values()), [f"client {names[j]}" for j in columns])
    return Common(len(order), columns, how == "union" and len(shared) < len(whole))


def _by_position(said: Mapping[int, Said], names: Sequence[str]) -> Common:
    first = next(iter(said))
    m = said[first].features
    for j, one in said.items():
        if one.features != m:
            raise DataError(
                f"client {names[j]}: expected {m} features like client {names[first]}, found {one.features}; without "
                "names they cannot be matched otherwise."
            )
    return Common(m, {j: np.arange(m) for j in said}, False)
