"""Which kinds of data belong to which estimator."""

from __future__ import annotations

from typing import Any

from cofactor.methods.catalog import ENTRIES
from cofactor.types import CofactorError

TAKES = {
    "FederatedNMF": ("real", "gaps", "blocks"),
    "FederatedBMF": ("boolean",),
    "FederatedMF": ("ratings",),
    "FederatedKMeans": ("clusters",),
}
"""Which kinds of methods each estimator takes."""


def family(estimator: type) -> str:
    """Return the name of an estimator of this package; of a subclass, that of the one it is made from.

    >>> family(type("FederatedBMF", (), {}))
    'FederatedBMF'
    """
    return next(base.__name__ for base in estimator.__mro__ if base.__name__ in TAKES)


def family_of(kind: str) -> str | None:
    """Return the name of the estimator that takes a kind of data.

    >>> family_of("gaps")
    'FederatedNMF'
    """
    return next((name for name, takes in TAKES.items() if kind in takes), None)


def check_takes(kind: str, method: Any, estimator: str) -> None:
    """Refuse a method of a kind that belongs to another estimator."""
    other = family_of(kind) or estimator
    if other != estimator:
        known = ", ".join(entry.name for entry in ENTRIES if entry.kind in TAKES[estimator])
        raise CofactorError(
            f"method: {method!r} is a method of {other}, and this is {estimator}; use {other}(method=...), or one of: "
            f"{known}."
        )
