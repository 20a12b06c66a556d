"""From what users hold (a list, a table with groups, data frames) to checked clients with feature names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array

from cofactor import kinds
from cofactor.kinds import Checked
from cofactor.kinds.kind import Kind
from cofactor.local import arrays
from cofactor.method import Method
from cofactor.methods.blocks import blocks
from cofactor.methods.build import Facts
from cofactor.plan import Plan
from cofactor.types import Array, CofactorError, Data, DataError


class Clients(NamedTuple):
    """Checked data of every client, their names, and for grouped input the rows of each in the whole."""

    data: list[Data]
    names: list[Any]
    rows: list[Array] | None


def is_many(X: Any) -> bool:
    """Whether X is a list of matrices (clients) rather than one matrix (perhaps a list of rows)."""
    if not isinstance(X, list | tuple) or len(X) == 0:
        return False
    return is_elsewhere(X) or sparse.issparse(X[0]) or np.ndim(X[0]) == 2


def is_elsewhere(X: Any) -> bool:
    """Whether X is on the workers of dask: an array of chunks, or a list of blocks that are delayed or futures."""
    one = type(X[0] if isinstance(X, list | tuple) and len(X) else X)
    return hasattr(one, "__dask_graph__") or one.__module__.startswith("distributed.")


def left_there(X: Any, groups: Any = None) -> Clients:
    """Return the clients of data that are elsewhere: their chunks or blocks, to be checked where they are."""
    from cofactor.engines.dask_engine import clients_of

    if groups is not None:
        raise CofactorError("groups: expected none for data on workers, whose blocks are the clients. Found some.")
    data = clients_of(X)
    return Clients(data, list(range(len(data))), None)


def split(X: Any, groups: Any, *, kind: Kind, convert: Convert) -> Clients:
    """Return the clients: the items of a list, the groups of a matrix, or one client; each checked."""
    many = is_many(X)
    if many and groups is not None:
        raise CofactorError("expected either a list of clients or one matrix with groups, found both.")
    data = kinds.check(kind, [convert(x, j) for j, x in enumerate(X if many else [X])])
    if many or groups is None:
        return Clients(data, list(range(len(data))), None)
    whole, labels = data[0], np.asarray(groups)
    if labels.shape != (whole.shape[0],):
        raise CofactorError(f"groups: expected one label per row ({whole.shape[0]}), found shape {labels.shape}.")
    names, owner = np.unique(labels, return_inverse=True)
    rows = [np.flatnonzero(owner == j) for j in range(len(names))]
    return Clients(Checked(arrays.rows(whole, r) for r in rows), names.tolist(), rows)


def facts(data: list[Data], plan: Plan) -> Facts:
    """Return what a method may know of the data: in a private fit nothing but what the plan declares.

    Of blocks that are elsewhere, neither rows nor features may be known.
    """
    if is_elsewhere(data):
        shapes = [shape if isinstance(shape := getattr(X, "shape", None), tuple) else (np.nan, None) for X in data]
        rows = sum(n for n, _ in shapes)
        public = plan.rows if plan.privacy is not None or np.isnan(rows) else int(rows)
        return Facts(len(data), shapes[0][1], public)
    features = int(data[0].shape[1])
    if plan.privacy is not None:
        return Facts(len(data), features, plan.rows)
    return Facts(len(data), features, sum(X.shape[0] for X in data), some=data[0])


def in_form(data: list[Data], method: Method) -> list[Data]:
    """Return the data as a method takes them: row and column blocks of one matrix, or clients as they are."""
    if method.traits.kind != "blocks":
        return data
    if len(data) > 1:
        raise CofactorError(
            f"this method works on row and column blocks of one matrix: expected one without groups, found {len(data)} "
            "clients."
        )
    if is_elsewhere(data):
        raise CofactorError("this method works on row and column blocks of one matrix: expected it here, in memory.")
    return Checked(blocks(data[0], 1))


def in_order(parts: list[Array], rows: list[Array] | None) -> Array:
    """Return what clients have of their rows as one array, in the order of the matrix that they were split from."""
    if not parts:
        raise CofactorError("codes stay with their clients, on other machines: use fit, and transform where rows are.")
    if rows is None:
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    out = np.empty((sum(map(len, rows)), *parts[0].shape[1:]), parts[0].dtype)
    for own, part in zip(rows, parts, strict=True):
        out[own] = part
    return out


Convert = Callable[[Any, Any], Data]
"""(what a user holds, name of the client) -> a matrix."""


def matrix(X: Any, client: Any = 0) -> Data:
    """Return one matrix of numbers: shape and type by scikit-learn's rules; values are for its kind to check."""
    try:
        return check_array(X, accept_sparse=("csr", "csc"), dtype=(np.float64, np.float32), ensure_all_finite=False)
    except ValueError as error:
        raise DataError(f"client {client}: {error}") from error


def feature_names(X: Any) -> Array | None:
    """Return the column names that all clients share (None without data frames), or say where they differ."""
    items = X if is_many(X) else [X]
    known = [(j, names) for j, names in enumerate(map(_columns, items)) if names is not None]
    for j, names in known:
        if len(set(names)) < len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise DataError(f"client {j}: expected distinct feature names, found {twice!r} more than once.")
        if names != known[0][1]:
            raise DataError(f"client {j}: {_difference(known[0][1], names)} than client {known[0][0]}.")
    return np.array(known[0][1], dtype=object) if known else None


def _columns(X: Any) -> list[str] | None:
    """Return the column names of a data frame if all are strings, as scikit-learn does."""
    columns = list(getattr(X, "columns", []))
    return columns if columns and all(isinstance(name, str) for name in columns) else None


def _difference(expected: Sequence[str], found: Sequence[str]) -> str:
    """Say how two lists of names differ."""
    missing, extra = (sorted(set(a) - set(b))[:3] for a, b in ((expected, found), (found, expected)))
    if not missing and not extra:
        return "expected the features in the same order; sort the columns alike: found another order"
    parts = [f"missing {', '.join(map(repr, missing))}"] if missing else []
    parts += [f"unknown {', '.join(map(repr, extra))}"] if extra else []
    return f"expected the same features; found {' and '.join(parts)}: other features"
