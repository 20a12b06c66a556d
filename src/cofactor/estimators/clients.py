"""From what users hold (a list, a table with groups, data frames) to checked clients with feature names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array

from cofactor import kinds
from cofactor.data import harmonise
from cofactor.data.formats.table import Table, absent, shown
from cofactor.data.harmonise import How
from cofactor.data.partition import by_group
from cofactor.engines.team import Team
from cofactor.estimators.among import ALONE, told
from cofactor.estimators.tables import as_tables, is_frame, is_lazy, set_aside, without_numbers
from cofactor.kinds import Checked
from cofactor.kinds.kind import Kind
from cofactor.local import arrays
from cofactor.local.columns import SomeColumns, groups
from cofactor.method import Method
from cofactor.methods.blocks import blocks
from cofactor.methods.build import Facts, refuse_again
from cofactor.plan import Plan, is_whole
from cofactor.types import Array, CofactorError, Data, DataError, unknown

NUMBERS = (np.float64, np.float32)
MOST_BY_DEFAULT = 10


class Clients(NamedTuple):
    """Checked data of every client, their names, and for grouped input the rows of each in the whole.

    ``features`` are the names of the columns of the data, ``known`` the columns of every client where they differ,
    ``moved`` says whether columns of a client came in another order.
    """

    data: list[Data]
    names: list[Any]
    rows: list[Array] | None
    features: list[str] | None = None
    known: list[Array] | None = None
    moved: bool = False

    @property
    def width(self) -> int | None:
        """How many features there are; None for data that are elsewhere."""
        return None if is_elsewhere(self.data) else int(self.data[0].shape[1])


def is_many(X: Any) -> bool:
    """Whether X is a list of matrices (clients) rather than one matrix (perhaps a list of rows)."""
    if not isinstance(X, list | tuple) or len(X) == 0:
        return False
    return is_elsewhere(X) or _sides(X[0]) == 2


def _sides(X: Any) -> int:
    """Return how many sides something has that may be a matrix: an array, sparse, a data frame, AnnData, or lists."""
    if is_lazy(X):
        return 2
    shape = getattr(X, "shape", None)
    return len(shape) if isinstance(shape, tuple) else np.ndim(X)


def is_elsewhere(X: Any) -> bool:
    """Whether X is on the workers of dask: an array of chunks, or a list of blocks that are delayed or futures."""
    one = type(X[0] if isinstance(X, list | tuple) and len(X) else X)
    return hasattr(one, "__dask_graph__") or one.__module__.startswith("distributed.")


def left_there(X: Any, plan: Plan, groups: Any = None) -> Clients:
    """Return the clients of data that are elsewhere: their chunks or blocks, to be checked where they are."""
    from cofactor.engines.dask_engine import clients_of

    if groups is not None:
        raise CofactorError("groups: expected none for data on workers, whose blocks are the clients. Found some.")
    data = clients_of(X, plan)
    return Clients(data, list(range(len(data))), None)


def split(
    X: Any,
    groups: Any,
    *,
    kind: Kind,
    convert: Convert,
    features: How = "same",
    layer: str | None = None,
    empty: bool = False,
    team: Team = ALONE,
) -> Clients:
    """Return the clients: the items of a list, the groups of a matrix, or one client; each checked.

    ``groups`` are labels of the rows, or the name of a column that holds them. Features are matched by name where
    there are names. ``empty`` lets clients have no rows, and wants all of them in memory: those of a private fit. With
    a ``team`` of several processes the clients are those of this one, and features those of all of them.
    """
    refuse_others(X)
    many = is_many(X)
    if many and groups is not None:
        raise CofactorError("expected either a list of clients or one matrix with groups, found both.")
    if many and empty:
        refuse_again(X)
    tables = as_tables(X if many else [X], layer=layer, here=empty)
    if empty:
        refuse_again([table.X for table in tables])  # frames and other containers may hold the same cells
    if isinstance(groups, str):
        tables[0], groups = set_aside(tables[0], groups)
    tables = [replace(table, X=converted(table.X, j, convert)) for j, table in enumerate(tables)]
    first = sum(told(team, "the clients", len(tables))[: team.here])
    tables = [replace(table, source=f"client {j}") for j, table in enumerate(tables, first)]
    names, data, known = matched(tables, features, team)
    checked = kinds.check(kind, data, first=first, features=names, private=empty)
    if many or groups is None:
        moved = any(table.feature_names not in (None, names) for table in tables)
        return Clients(checked, list(range(len(data))), None, names, known, moved)
    return _grouped(checked[0], np.asarray(groups), names)


def _grouped(whole: Data, labels: Array, features: list[str] | None) -> Clients:
    """Make a client of every group of rows."""
    if labels.shape != (whole.shape[0],):
        raise CofactorError(f"groups: expected one label per row ({whole.shape[0]}), found shape {labels.shape}.")
    if missing := absent(labels):
        raise CofactorError(f"groups: expected a label for every row, found {missing} rows without.")
    parts = by_group(labels)
    rows = list(parts.values())
    data = [whole.take(r) if arrays.is_held(whole) else arrays.rows(whole, r) for r in rows]
    return Clients(Checked(data), list(parts), rows, features)


def converted(X: Any, client: int, convert: Convert, *, splits: bool = True) -> Data:
    """Return a matrix of numbers, or name the columns of a data frame that hold none.

    ``splits`` says that one of them could tell clients apart.
    """
    try:
        return X if arrays.is_held(X) else convert(X, client)
    except (ValueError, TypeError):
        if not is_frame(X) or not (text := without_numbers(X)):
            raise
        remedy = f"drop them, or name one that tells clients apart: groups={text[0]!r}" if splits else "drop them"
        raise DataError(
            f"client {client}: expected numbers, found others in the columns {shown(text)}; {remedy}."
        ) from None


def refuse_others(X: Any) -> None:
    """Refuse what holds no matrix, in words: names of files, a dict of clients, nothing at all."""
    some = X[0] if isinstance(X, list | tuple) and len(X) else X
    if isinstance(some, str | Path):
        raise DataError(
            f"expected matrices, data frames or AnnData, found the text {str(some)!r}; read files first "
            "(anndata.read_h5ad, pandas.read_csv), or give them to the command line: cofactor fit."
        )
    rows = some is X or isinstance(some, list | tuple)  # lists of numbers are rows of one matrix
    if not (rows or is_elsewhere(X)) and _sides(some) == 1:
        raise DataError(
            "client 0: expected a matrix (rows x features), found 1 dimension; a client of one feature is "
            "x.reshape(-1, 1), one of a single row x.reshape(1, -1), and rows of one matrix are np.vstack(X)."
        )
    if isinstance(X, Mapping) and not sparse.issparse(X):  # scipy keeps one form of matrices in a dict
        raise DataError("expected one matrix or a list of clients, found a dict; give list(X.values()).")
    if isinstance(X, Iterator):
        raise DataError("expected one matrix or a list of clients, found an iterator; give list(X).")
    if isinstance(X, list | tuple) and not len(X):
        raise DataError("expected at least one client, found an empty list.")


def matched(mine: list[Table], how: How, team: Team = ALONE) -> tuple[list[str] | None, list[Data], list[Array] | None]:
    """Match features by name over all processes: names (None without), the data here, and who has which if they differ.

    Each process matching its own would put features of one name in other columns elsewhere.
    """
    data = [table.X for table in mine]
    if how not in get_args(How):
        raise unknown("features", how, get_args(How))
    tables, own = mine, slice(None)
    if team.count > 1:
        heads = told(team, "the features", list(map(harmonise.head, mine)))
        first = sum(map(len, heads[: team.here]))
        own = slice(first, first + len(mine))
        tables = harmonise.among(mine, own, list(chain.from_iterable(heads)))
    if all(table.feature_names is None for table in tables):
        if how in ("union", "intersection"):
            raise DataError(f"features={how!r}: expected clients with feature names, found none.")
        return None, data, None
    names, placed, known = harmonise.merged(tables, how)
    return names, placed[own], known


def facts(data: list[Data], plan: Plan, team: Team = ALONE) -> Facts:
    """Return what a method may know of the data: in a private fit nothing but what the plan declares.

    All processes know the same, or each would build a method of its own; under masks none says how many rows it has.

    Of blocks that are elsewhere, neither rows nor features may be known.
    """
    if is_elsewhere(data):
        shapes = [shape if isinstance(shape := getattr(X, "shape", None), tuple) else (np.nan, None) for X in data]
        rows = sum(n for n, _ in shapes)
        public = plan.rows if plan.privacy is not None or np.isnan(rows) else int(rows)
        return Facts(len(data), shapes[0][1], public)
    features, apart = int(data[0].shape[1]), plan.privacy is not None or (plan.secure and team.count > 1)
    known = [X.index for X in data] if isinstance(data[0], SomeColumns) else None
    parts = told(team, "the data", (len(data), None if apart else sum(X.shape[0] for X in data), known))
    lacking = None if known is None else groups([index for *_, some in parts for index in some], features)
    count = sum(clients for clients, *_ in parts)
    if apart:
        return Facts(count, features, plan.rows, lacking)
    return Facts(count, features, sum(rows for _, rows, _ in parts), lacking, some=data[0])


def rank(k: Any, facts: Facts) -> int:
    """Return the number of components that is asked for, checked against what is known of the data; None is usual."""
    n, m = facts.rows, facts.features
    limit = min((size for size in (n, m) if size is not None), default=k)
    if limit is None:
        raise CofactorError("n_components: expected a whole number for blocks whose shapes are not known here.")
    k = min(MOST_BY_DEFAULT, limit) if k is None else k
    if not (is_whole(k) and 1 <= k <= limit):
        rows = "" if n is None else f"the smaller of n_samples={n} and "
        raise CofactorError(
            f"n_components: expected a whole number from 1 to {limit} ({rows}n_features={m}), found {k!r}."
        )
    return int(k)


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


def matrix(X: Any, client: Any = 0, dtype: Any = NUMBERS) -> Data:
    """Return one matrix of numbers: shape and type by scikit-learn's rules; values are for its kind to check."""
    try:
        return check_array(X, dtype=dtype, accept_sparse=("csr", "csc"), ensure_all_finite=False, ensure_min_samples=0)
    except ValueError as error:
        told = str(error).partition("\n")[0]  # what follows are the values themselves
        raise DataError(f"client {client}: {told}") from None
