"""What is given beside data goes by place, so that names it brings along must not say otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cofactor.estimators.clients import is_elsewhere, is_many
from cofactor.estimators.containers import row_names
from cofactor.estimators.tables import is_annotated, is_frame
from cofactor.types import CofactorError

ROWS, FEATURES = "rows", "features"
ORDERED = {ROWS: "`.loc[X.index]`, or of AnnData X.obs_names", FEATURES: "`[X.columns]`, or of AnnData X.var_names"}
"""How pandas puts them in the order of X."""


def agree(X: Any, given: dict[str, Any]) -> None:
    """Refuse pandas objects that name the rows or the features as X does, in another order.

    A table of patients is seldom sorted as their matrix is, and pandas would match the two by name. Names that are
    others altogether say nothing, and places count.
    """
    if is_elsewhere(X):
        return
    for name, values in given.items():
        for one, x in _beside(values, X):
            for what, theirs, ours in ((ROWS, _rows(one), row_names(x)), (FEATURES, _features(one), _features(x))):
                _refuse(name, what, theirs, ours)


def _beside(values: Any, X: Any) -> Iterator[tuple[Any, Any]]:
    """Go through what is given for every client, each with its data."""
    if isinstance(values, list | tuple):
        yield from zip(values, X if is_many(X) else [X])
    else:
        yield values, X[0] if is_many(X) else X


def _rows(values: Any) -> Any:
    return values.index if hasattr(values, "iloc") else None


def _features(values: Any) -> Any:
    if is_annotated(values):
        return values.var_names
    return values.columns if is_frame(values) else None


def _refuse(name: str, what: str, theirs: Any, ours: Any) -> None:
    if theirs is None or ours is None or len(theirs) != len(ours):
        return
    found, expected = list(map(str, theirs)), list(map(str, ours))
    if found == expected or set(found) != set(expected):
        return
    place = next(i for i, pair in enumerate(zip(found, expected)) if pair[0] != pair[1])
    raise CofactorError(
        f"{name}: expected the {what} in the order of X, found their names in another: {found[place]!r} at place "
        f"{place}, where X has {expected[place]!r}. Put it in that order ({ORDERED[what]}), or give `.to_numpy()` "
        "of it if the order is right and the names are not."
    )
