"""From what users hold (a CSR matrix, or triples of user, item and rating) to checked ratings with names."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cofactor.data.formats.table import absent, plain
from cofactor.data.formats.triples import DUPLICATES, merged, places_of
from cofactor.data.partition import by_group
from cofactor.engines.team import Team
from cofactor.estimators.tables import is_frame
from cofactor.ratings import observed
from cofactor.types import Array, CofactorError, DataError


class Ratings(NamedTuple):
    """Checked CSR ratings (users x items), one entry per pair, and the names of rows and columns.

    ``named`` says that these were given, as those of triples are, and do not just count.
    """

    matrix: Any
    users: Array
    items: Array
    named: bool


def read(
    R: Any, *, duplicates: str = "error", limits: tuple[float, float] | None = None, counts: bool = False
) -> Ratings:
    """Return ratings from a sparse matrix, a data frame, or a tuple (users, items, ratings) of equally long lists.

    ``duplicates`` says what two ratings of one pair are: "error", or their "mean" or "sum". ``limits`` is the declared
    range. With ``counts`` users and items alone are clicks, each of which counts as 1.
    """
    if duplicates not in DUPLICATES:
        raise CofactorError(f"duplicates: expected 'error', 'mean' or 'sum', found {duplicates!r}.")
    if isinstance(R, list) and R and is_frame(R[0]):
        raise DataError(f"expected one data frame of triples, found a list of {len(R)}; use pd.concat, and groups.")
    if isinstance(R, list):
        raise DataError(
            f"expected ratings of all clients as one matrix, found a list of {len(R)}; use scipy.sparse.vstack, and "
            "groups with the client of every user."
        )
    named = isinstance(R, tuple) or is_frame(R)
    if named:
        users, items, u, i, values = _triples(triples(R, counts=counts))
    else:
        C = stored(R)
        users, items, u, i, values = np.arange(C.shape[0]), np.arange(C.shape[1]), C.row, C.col, C.data
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    check_values(users[u], items[i], values, limits)
    u, i, values = unique(u, i, values, (users, items, duplicates))
    return Ratings(sparse.csr_matrix((values, (u, i)), shape=(len(users), len(items))), users, items, named)


def over_all_items(held: Ratings, team: Team) -> Ratings:
    """Return the ratings over the items of all processes: each knows its own users, and items go by their names.

    Columns of a matrix have no names: there all processes need the same.
    """
    if team.count == 1:
        return held
    each = team.exchange("the items", (held.named, held.items))
    first = each[0]
    for process, (named, items) in enumerate(each):
        if named != first[0] or not (named or len(items) == len(first[1])):
            found = "triples" if named else f"a matrix of {len(items)} items"
            wanted = "triples" if first[0] else f"a matrix of {len(first[1])} items"
            raise DataError(f"process {process}: expected {wanted} like process 0, found {found}.")
    items = np.unique(np.concatenate([items for _, items in each]))
    C = held.matrix.tocoo()
    column = places(held.items, items)[C.col]
    shape = (C.shape[0], len(items))
    return held._replace(matrix=sparse.csr_matrix((C.data, (C.row, column)), shape=shape), items=items)


def stored(R: Any) -> Any:
    """Return the entries of a sparse matrix as they are stored: as CSR, triples of one user and item would be added up.

    What is not sparse is refused.
    """
    return (R if sparse.issparse(R) else observed(R)).tocoo()


def names(wanted: Any) -> Array:
    """Return names of users or items as numbers or strings; the objects that data frames hold become strings."""
    found = np.asarray(wanted)
    return found.astype(str) if found.dtype.kind == "O" else found


def triples(R: Any, *wanted: str, counts: bool = False) -> tuple[Any, ...]:
    """Return users, items and ratings of a tuple, or of a data frame by its column names (or what is wanted).

    With ``counts`` those that lack ratings have a 1 for each.
    """
    if counts and (pairs := _pairs(R)) is not None:
        return *pairs, np.ones(len(pairs[0]))
    if isinstance(R, tuple):
        return R
    wanted = wanted or ("user", "item", "rating")
    if not is_frame(R):
        raise DataError(f"expected a data frame with the columns {', '.join(wanted)}, found {type(R).__name__}.")
    columns = [str(name) for name in R.columns]
    found = places_of(columns, wanted)
    if None in found:
        missing = [name for name, place in zip(wanted, found, strict=True) if place is None]
        raise DataError(
            f"expected a data frame with the columns {', '.join(wanted)}, found no {missing[0]} among "
            f"{', '.join(columns[:8])}; rename them, or give a tuple (users, items, ratings)."
        )
    return tuple(plain(R[R.columns[place]]) for place in found if place is not None)


def _pairs(R: Any) -> tuple[Any, ...] | None:
    """Return users and items where there are no ratings, or None."""
    if isinstance(R, tuple):
        return R if len(R) == 2 else None
    named = is_frame(R) and places_of([str(name) for name in R.columns], ("user", "item", "rating"))
    return triples(R, "user", "item") if named and named[2] is None and None not in named[:2] else None


def _triples(R: tuple[Any, ...]) -> tuple[Array, Array, Array, Array, Array]:
    if len(R) != 3 or len({np.shape(a) for a in R}) != 1 or np.ndim(R[0]) != 1:
        shapes = [np.shape(a) for a in R]
        raise DataError(f"triples: expected (users, items, ratings), three lists of one length; found shapes {shapes}.")
    for what, ids in zip(("user", "item"), R[:2], strict=True):
        if missing := absent(ids):
            raise DataError(
                f"triples: expected one {what} for every rating, found {missing} without; drop or name them."
            )
    users, u = np.unique(names(R[0]), return_inverse=True)
    items, i = np.unique(names(R[1]), return_inverse=True)
    values = np.asarray(R[2])
    if values.dtype.kind not in "fiu":
        raise DataError(f"triples: expected numbers as ratings, found dtype {values.dtype}.")
    return users, items, u, i, values


def check_values(users: Any, items: Any, values: Array, limits: tuple[float, float] | None) -> None:
    """Refuse ratings that are no finite numbers >= 0, or outside the declared range."""
    low, high = limits if limits is not None else (0.0, np.inf)
    bad = ~(np.isfinite(values) & (values >= low) & (values <= high))
    if bad.any():
        e = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"user {users[e]}: expected ratings in [{low:g}, {high:g}], found {values[e]:g} for item {items[e]} "
            f"({int(bad.sum())} such rating(s)); correct them or widen rating_range."
        )


def unique(u: Array, i: Array, values: Array, names: tuple[Array, Array, str]) -> tuple[Array, Array, Array]:
    """Refuse, average or add up several ratings of one pair."""
    users, items, duplicates = names
    order = np.lexsort((i, u))
    u, i, values = u[order], i[order], values[order]
    again = (np.diff(u) == 0) & (np.diff(i) == 0)
    if not again.any():
        return u, i, values
    if duplicates == "error":
        e = int(np.flatnonzero(again)[0])
        raise DataError(
            f"user {users[u[e]]}: expected one rating per item, found two of item {items[i[e]]}; "
            "take their mean with duplicates='mean', of clicks their sum with 'sum'."
        )
    first = np.flatnonzero(np.append(True, ~again))
    return u[first], i[first], merged(values, first, duplicates)


def rows_of(n: int, groups: Any, *, apart: bool = False) -> list[Array]:
    """Return the rows of every client: all of them, those of a group, or with ``apart`` one each."""
    if groups is not None and apart:
        raise CofactorError("groups: expected either groups or users_as_clients=True, found both.")
    if groups is None:
        return list(np.arange(n)[:, None]) if apart else [np.arange(n)]
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise CofactorError(f"groups: expected one label per row ({n}), found shape {labels.shape}.")
    if missing := absent(labels):
        raise DataError(f"groups: expected a label for every user, found {missing} without.")
    return list(by_group(labels).values())


def labels_of(R: Any, column: str, users: Array) -> Array:
    """Return the label of every user, from a column of a data frame of triples; a user has one."""
    if not is_frame(R) or column not in [str(name) for name in R.columns]:
        found = f"none among {', '.join(map(str, R.columns))}" if is_frame(R) else type(R).__name__
        raise DataError(f"groups: expected a data frame with a column {column!r}, found {found}.")
    owner, labels = places(names(triples(R, "user")[0]), users), names(plain(R[column]))
    first = np.empty(len(users), labels.dtype)
    first[owner[::-1]] = labels[::-1]
    if (moved := np.flatnonzero(first[owner] != labels)).size:
        e = int(moved[0])
        raise DataError(
            f"groups: expected every user in one group, found user {users[owner[e]]} in {first[owner[e]]} and "
            f"{labels[e]}; give such a user a name in each."
        )
    return first


def places(wanted: Array, names: Array) -> Array:
    """Return where names stand among the known ones, in whatever order; the number of known ones for unknown names.

    Numbers and their texts name the same: files hold texts where data frames hold numbers.
    """
    if "U" in (wanted.dtype.kind, names.dtype.kind):
        wanted, names = wanted.astype(str), names.astype(str)
    if len(names) == 0:
        return np.zeros(wanted.shape, int)
    order = np.argsort(names, kind="stable")
    place = order[np.minimum(np.searchsorted(names, wanted, sorter=order), len(names) - 1)]
    return np.where(names[place] == wanted, place, len(names))
