"""What the data are: non-negative numbers, zeros and ones, observed entries, rows to cluster, blocks of one matrix.

A kind knows how its data are checked, what their error is, what can be shown of them, and which method they get unless
one is named. Nothing above it asks for a flag.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cofactor.kinds.kind import Kind
from cofactor.kinds.numbers import BLOCKED, CLUSTERED, GAPPED, NON_NEGATIVE
from cofactor.kinds.rated import RATED
from cofactor.kinds.zero_one import ZERO_ONE
from cofactor.local import arrays
from cofactor.local.admitted import SizeError
from cofactor.types import Data, DataError, unknown

KINDS: dict[str, Kind] = {kind.name: kind for kind in (NON_NEGATIVE, GAPPED, ZERO_ONE, RATED, CLUSTERED, BLOCKED)}


def named(name: str) -> Kind:
    """Return a kind by its name."""
    if name not in KINDS:
        raise unknown("kind", name, KINDS)
    return KINDS[name]


class Checked(list[Data]):
    """Data of clients that were checked: nobody checks them again."""


def several(Xs: Any) -> Sequence[Data]:
    """Return the clients' data; refuse one matrix, whose rows would be taken for clients."""
    _refuse_blocks(Xs)
    if not isinstance(Xs, list | tuple) and hasattr(type(Xs), "shape") and len(Xs.shape) == 2:
        raise DataError(
            f"expected a list of matrices, one for each client, found one matrix {tuple(Xs.shape)}; put it in a list, "
            "or split its rows (cofactor.data.partition)."
        )
    return Xs


def _refuse_blocks(X: Any) -> None:
    """Refuse what dask holds."""
    if hasattr(type(X), "__dask_graph__"):
        raise DataError(
            "expected matrices in memory, found blocks of dask that stay on their workers; use the engine Dask(client)."
        )


def _refuse_annotated(X: Any, client: object) -> None:
    """Refuse AnnData: which of its matrices is meant is for estimators to say."""
    if hasattr(X, "obs_names"):
        raise DataError(
            f"client {client}: expected a matrix, found {type(X).__name__}; give its matrix (adata.X, a layer), or "
            "take an estimator, as FederatedNMF, which reads it."
        )


def check(
    kind: str | Kind,
    Xs: Sequence[Data],
    *,
    first: int = 0,
    clients: Sequence[object] | None = None,
    features: Sequence[str] | None = None,
    private: bool = False,
) -> Checked:
    """Check every client's data, and that all have the same features and one dtype (the widest).

    ``first`` is the number of the first client, where these are not all of them; errors call clients by their number,
    or by the names in ``clients``, and features by theirs. In a ``private`` run clients without rows pass, since it
    must not tell them apart from others, and what an error found is for the client alone (:meth:`DataError.kept`).
    """
    if isinstance(Xs, Checked):
        return Xs
    if len(several(Xs)) == 0:
        raise DataError("expected at least one client, found an empty list.")
    _refuse_blocks(Xs[0])
    same_columns([columns_of(X) for X in Xs], first=first)
    kind = named(kind) if isinstance(kind, str) else kind
    who = range(first, first + len(Xs)) if clients is None else clients
    for X, name in zip(Xs, who, strict=True):
        _refuse_annotated(X, name)
    data = [check_one(kind, X, name, features, private=private) for X, name in zip(Xs, who, strict=True)]
    return alike(data, first=first)


def check_one(
    kind: Kind, X: Data, client: object, features: Sequence[str] | None = None, *, private: bool = False
) -> Data:
    """Check one client's data; errors name the feature.

    In a ``private`` run it may have no rows, finite values are of any size, and floats stay as wide as they are: others
    would see what is in them.
    """
    if private and arrays.is_placed(X):  # what fits there, and in which type, depends on the rows
        raise DataError(f"client {client}: expected rows in memory in a private run, found some on a device.")
    try:
        nothing = private and X.shape[0] == 0
        found = kind.check(np.zeros((1, X.shape[1]), X.dtype), client)[:0] if nothing else kind.check(X, client)
    except DataError as error:
        if not (private and isinstance(error, SizeError)):
            named = error if features is None else error.named(features)
            raise (named.kept(client) if private else named) from None
        found = error.data
    except Exception as error:  # of other software, which says what it found: sizes, values
        if not private:
            raise
        raise DataError(f"client {client}: {type(error).__name__}: {error}").kept(client) from error
    return found.astype(X.dtype) if private and X.dtype == np.float32 and found.dtype == np.float64 else found


def alike(data: Sequence[Data], *, first: int = 0) -> Checked:
    """Return checked data of several clients in one dtype; refuse other features than the first one has."""
    for j, X in enumerate(data, first):
        if X.shape[1] != data[0].shape[1]:
            raise DataError(
                f"client {j}: expected {data[0].shape[1]} features like client {first}, found {X.shape[1]}; "
                "give every client the same columns in the same order."
            )
    return as_dtype(data, np.result_type(*(X.dtype for X in data)))


Columns = tuple[str, ...] | None
"""What the columns of a data frame are called; None where they have no names."""


def columns_of(X: Any) -> Columns:
    """Return the names of the columns of a data frame; None of anything else, and where they are only counted."""
    found = getattr(X, "columns", None) if hasattr(X, "dtypes") else None
    return None if found is None or type(found).__name__ == "RangeIndex" else tuple(map(str, found))


def same_columns(found: Sequence[Columns], *, first: int = 0) -> None:
    """Refuse data frames with other columns than the first one, or in another order: here nothing is matched by name.

    Columns of other names would be taken for one feature.
    """
    known = [(j, names) for j, names in enumerate(found, first) if names is not None]
    for j, names in known[1:]:
        if names != known[0][1]:
            here = next((i for i, both in enumerate(zip(names, known[0][1])) if both[0] != both[1]), None)
            what = f"{len(names)} of them" if here is None else f"{names[here]!r} in the place of {known[0][1][here]!r}"
            raise DataError(
                f"client {j}: expected columns of the same names in the same order as client {known[0][0]}, found "
                f"{what}; give every client the same columns in the same order (df[columns]), or take an estimator, as "
                "FederatedNMF, which matches them by name."
            )


def as_dtype(data: Sequence[Data], dtype: np.dtype[Any]) -> Checked:
    """Return the data in one dtype; blocks of files are read in it."""
    return Checked(X if X.dtype == dtype or not hasattr(X, "astype") else X.astype(dtype) for X in data)
