"""Features matched by name between clients: which column of one is which column of another."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from cofactor.data.formats.row_blocks import RowBlocks
from cofactor.data.formats.table import Table, shown
from cofactor.local.columns import SomeColumns
from cofactor.types import Array, CofactorError, Data, DataError

How = Literal["intersection", "union", "same", "position"]


@dataclass(frozen=True)
class Harmonised:
    """The features of a federation (m of them) and, for every client, its columns among them.

    For "union", column i of client j is feature ``columns[j][i]``: a client that lacks features has fewer columns,
    and fits ``X_j ~ W_j H[:, columns[j]]``. Otherwise every client has all features, and feature i is its column
    ``columns[j][i]``. ``note`` says in words if names were left apart that differ only in case or spaces.
    """

    feature_names: list[str] | None
    columns: list[Array]
    n_features: int
    how: How
    note: str = ""

    def select(self, X: Data, client: int) -> Data:
        """Return client j's data with its columns in the order of the features; the union keeps all of them."""
        index = self.columns[client]
        if self.how == "union" or np.array_equal(index, np.arange(X.shape[1])):
            return X
        return _columns(X, index)

    def known(self) -> list[Array] | None:
        """Return the features of every client where they differ; None where all have all of them."""
        if self.how != "union" or all(len(index) == self.n_features for index in self.columns):
            return None
        return self.columns

    def place(self, X: Data, client: int) -> Data:
        """Return client j's data over the features of all: in their order, what it lacks missing."""
        if self.how != "union":
            return self.select(X, client)
        if self.known() is not None:  # of all clients alike, also of one that has all features
            return SomeColumns(X, self.columns[client], self.n_features)
        return spread(X, self.columns[client], self.n_features)

    def present(self, client: int) -> Array:
        """Return the mask (m) of the features that client j has."""
        mask = np.zeros(self.n_features, dtype=bool)
        mask[self.columns[client] if self.how == "union" else slice(None)] = True
        return mask


def spread(X: Data, index: Array, n_features: int) -> Data:
    """Return data whose column i is feature ``index[i]`` over all features: reordered, or with missing ones."""
    if len(index) < n_features:
        return SomeColumns(X, index, n_features)
    back = np.argsort(index)
    if np.array_equal(back, np.arange(n_features)):
        return X
    return _columns(X, back)


def onto(
    table: Table,
    names: Sequence[str],
    *,
    lacking: bool,
    others: bool,
    aside: Container[str] = (),
    whose: str = "the model",
) -> Data:
    """Return new rows over the features of a model (or of ``whose``), by name.

    ``lacking`` ones may be missing (not zero), and ``others`` may be there and are left out; columns that are set
    ``aside`` always are. Anything else is refused.
    """
    found = table.feature_names
    if found is None or found == list(names):
        return table.X
    _places(table)  # a name that is there twice would put all others out of place
    place = {name: i for i, name in enumerate(names)}
    mine = [i for i, name in enumerate(found) if name in place]
    extra = [name for name in found if name not in place and name not in aside]
    if extra and not (others and mine):
        todo = "; drop them, or take `features='intersection'` of the estimator (set_params)" if mine else ""
        raise DataError(f"{table.source}: expected features of {whose} only, found also {shown(extra)}{todo}.")
    missing = [name for name in names if name not in set(found)]
    if missing and (not lacking or not mine):
        todo = "; `features='intersection'` of the estimator (set_params) finds codes without them" if mine else ""
        raise DataError(f"{table.source}: expected the features of {whose}, found none of {shown(missing)}{todo}.")
    X = table.X if len(mine) == table.shape[1] else _columns(table.X, np.array(mine))
    return spread(X, np.array([place[found[i]] for i in mine]), len(names))


def without(table: Table, names: Sequence[str]) -> Table:
    """Return a table without some of its features."""
    found = table.feature_names or []
    for name in names:
        if name not in found:
            raise DataError(f"{table.source}: expected a feature {name!r} to leave out, found none of that name.")
    left = [i for i, name in enumerate(found) if name not in set(names)]
    return replace(table, X=_columns(table.X, np.array(left, dtype=np.intp)), feature_names=[found[i] for i in left])


def _columns(X: Data, index: Array) -> Data:
    return X.columns(index) if isinstance(X, RowBlocks) else X[:, index]


def merged(tables: Sequence[Table], how: How) -> tuple[list[str] | None, list[Data], list[Array] | None]:
    """Match features by name: their names (None without), the data over them, and who has which where they differ.

    Names that differ in next to nothing are warned of: a feature would be left out, or be there twice.
    """
    found = match(tables, how)
    if found.known() is not None:
        check_linked(found.columns, [table.source for table in tables], _near([_places(table) for table in tables]))
    if found.note:
        warnings.warn(found.note, stacklevel=4)
    return found.feature_names, [found.place(table.X, j) for j, table in enumerate(tables)], found.known()


Head = tuple[list[str] | None, int, str]
"""What others need of a table to match features with it: names, how many there are, and where it is from."""


def head(table: Table) -> Head:
    """Return what other processes are told of a table."""
    return table.feature_names, int(table.shape[1]), table.source


def among(mine: Sequence[Table], own: slice, heads: Sequence[Head]) -> list[Table]:
    """Return the tables of all processes, of which ``own`` are here, and the others have no rows."""
    tables = [Table(np.zeros((0, m)), names, source=source) for names, m, source in heads]
    tables[own] = mine
    return tables


def check_linked(columns: Sequence[Array], clients: Sequence[str], hint: str = "") -> None:
    """Refuse a union in which some clients share no feature with the others, not even through a third client.

    Their columns of the factor would be found from their own rows alone, in an order of their own: component 1 there
    would have nothing to do with component 1 elsewhere.
    """
    reached, left = set(columns[0].tolist()), dict(enumerate(columns[1:], 1))
    while near := [j for j, index in left.items() if not reached.isdisjoint(index.tolist())]:
        for j in near:
            reached.update(left.pop(j).tolist())
    if left:
        raise DataError(
            f"{clients[min(left)]}: expected a feature in common with {clients[0]}, at least through other clients, "
            f"found none; components of a union would have nothing in common. {hint or 'Compare the names.'}"
        )


def match(tables: Sequence[Table], how: How = "intersection") -> Harmonised:
    """Match the features of all clients by name.

    "intersection" keeps what all clients have, "union" what any has, "same" insists on the same names in any
    order; the order of features is that of the first client that has them. "position" ignores names. Tables without
    names are matched by position, and must all be without. Equal lists of names may hold a name twice.
    """
    if how not in get_args(How):
        raise CofactorError(f"how must be one of {', '.join(get_args(How))}. Found {how!r}.")
    if not tables:
        raise CofactorError("Expected at least one table. Found none.")
    names = [table.feature_names for table in tables]
    unnamed = [table for table in tables if table.feature_names is None]
    if how == "position" or len(unnamed) == len(tables) or all(other == names[0] for other in names):
        return _by_position(tables, how)
    if unnamed:
        named = next(table for table in tables if table.feature_names is not None)
        raise DataError(
            f"{unnamed[0].source}: expected feature names as in {named.source}, found none; "
            "add them, or match by position."
        )
    return _by_name(tables, how)


def _by_position(tables: Sequence[Table], how: How) -> Harmonised:
    m = tables[0].shape[1]
    for table in tables:
        if table.shape[1] != m:
            raise DataError(
                f"{table.source}: expected {m} features as in {tables[0].source}, found {table.shape[1]}; "
                "without names they cannot be matched otherwise."
            )
    names = next((table.feature_names for table in tables if table.feature_names is not None), None)
    return Harmonised(names, [np.arange(m) for _ in tables], m, how)


def _by_name(tables: Sequence[Table], how: How) -> Harmonised:
    places = [_places(table) for table in tables]
    shared = [name for name in places[0] if all(name in place for place in places)]
    if how == "same":
        _check_same(tables, places)
    if how == "union":
        union = {name: i for i, name in enumerate(dict.fromkeys(name for place in places for name in place))}
        columns = [np.array([union[name] for name in place], dtype=np.intp) for place in places]
        return Harmonised(list(union), columns, len(union), how, _near(places))
    if not shared:
        examples = "; ".join(f"{t.source}: {shown(list(place))}" for t, place in zip(tables[:3], places))
        raise DataError(f"Expected features that all clients have, found none ({examples}). {_near(places)}".strip())
    columns = [np.array([place[name] for name in shared], dtype=np.intp) for place in places]
    return Harmonised(shared, columns, len(shared), how, _near(places))


def _places(table: Table) -> dict[str, int]:
    """Return the column of every name, or say which is there twice."""
    places: dict[str, int] = {}
    for i, name in enumerate(table.feature_names or []):
        if name in places:
            raise DataError(
                f"{table.source}: expected distinct feature names, found {name!r} in columns {places[name] + 1} and "
                f"{i + 1}; rename or merge them."
            )
        places[name] = i
    return places


OTHERWISE = (
    "Give all clients the same columns, or match them by intersection (those that all have) or union (those that any "
    "has): `features` of FederatedNMF, --features of the command line."
)
"""What to do where clients do not have the same features."""


def _check_same(tables: Sequence[Table], places: list[dict[str, int]]) -> None:
    for table, place in zip(tables, places):
        missing = [name for name in places[0] if name not in place]
        extra = [name for name in place if name not in places[0]]
        if missing or extra:
            found = [f"missing {shown(missing)}"] if missing else []
            found += [f"additional {shown(extra)}"] if extra else []
            raise DataError(
                f"{table.source}: expected the features of {tables[0].source}, found {' and '.join(found)}. "
                f"{_near([places[0], place]) or OTHERWISE}"
            )


def near_misses(tables: Sequence[Table]) -> str:
    """Say which names of different clients are nearly the same and stay apart, or nothing."""
    return _near([_places(table) for table in tables])


def _near(places: list[dict[str, int]]) -> str:
    """Say which names of different clients would match but for case, spaces and versions of gene ids, or nothing.

    So would letters with marks that are written as one character here, and as two there.
    """
    seen: dict[str, tuple[str, dict[str, int]]] = {}
    pairs = []
    for place in places:
        for name in place:
            known, owner = seen.setdefault(_bare(name), (name, place))
            if name not in owner and known not in place:
                pairs.append((known, name))
    if not pairs:
        return ""
    more = f" and {len(pairs) - 1} more pair{'s' * (len(pairs) > 2)}" if len(pairs) > 1 else ""
    known, name = pairs[0]
    what = "in case, spaces or the version of a gene id" if VERSIONED.match(known) else "in case or spaces"
    if unicodedata.normalize("NFC", known) == unicodedata.normalize("NFC", name):
        what = "in how letters with marks are written (Unicode NFC or NFD)"
    return f"Some names differ only {what} ({known!r} and {name!r}{more}): rename them if they are the same feature."


VERSIONED = re.compile(r"(ens[a-z]*\d+)(\.\d+)?", re.IGNORECASE)
"""A stable id of Ensembl, as ENSG00000141510.18; files with and without versions meet often."""


def _bare(name: str) -> str:
    """Return a name without what often differs between files: case, spaces around it, the version of a gene id."""
    name = unicodedata.normalize("NFC", name).strip().lower()
    found = VERSIONED.fullmatch(name)
    return found[1] if found else name
