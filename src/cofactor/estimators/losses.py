"""What scikit-learn calls a loss and its penalties, as options of methods."""

from __future__ import annotations

from numbers import Real
from typing import Any

from cofactor.types import CofactorError, unknown

METHODS = ("exact", "exact-beta", "exact-gaps")
"""Methods that take them, and whose cells may count more or less than others: ``exact-gaps`` does that."""
NAMED = {"frobenius": 2.0, "kullback-leibler": 1.0, "itakura-saito": 0.0}


def options(beta_loss: Any, alpha_W: Any, alpha_H: Any, l1_ratio: Any, orthogonality: Any = 0.0) -> dict[str, Any]:
    """Return the options that differ from plain least squares; none where nothing does.

    >>> options("kullback-leibler", 0.0, "same", 0.0)
    {'beta': 1.0}
    >>> options("frobenius", 0.0, "same", 0.0)
    {}
    """
    beta = number(beta_loss)
    ratio = _weight("l1_ratio", l1_ratio)
    if ratio > 1:
        raise CofactorError(f"l1_ratio: expected a number from 0 to 1, found {l1_ratio!r}.")
    of_codes, overlap = _weight("alpha_W", alpha_W), _weight("orthogonality", orthogonality)
    of_factor = of_codes if isinstance(alpha_H, str) and alpha_H == "same" else _weight("alpha_H", alpha_H)
    if overlap and beta != 2:
        raise CofactorError(f"orthogonality: expected beta_loss='frobenius' to go with it, found {beta_loss!r}.")
    found: dict[str, Any] = {} if beta == 2 else {"beta": beta}
    if of_codes or of_factor:
        codes, factor = ((alpha * ratio, alpha * (1 - ratio)) for alpha in (of_codes, of_factor))
        found |= {"codes_penalty": codes, "factor_penalty": factor}
    return found | ({"overlap": overlap} if overlap else {})


def number(beta_loss: Any) -> float:
    """Return the beta of a loss by name, or of a number."""
    if isinstance(beta_loss, str):
        if beta_loss not in NAMED:
            raise unknown("beta_loss", beta_loss, NAMED)
        return NAMED[beta_loss]
    if not isinstance(beta_loss, Real) or isinstance(beta_loss, bool):
        raise CofactorError(f"beta_loss: expected one of {', '.join(NAMED)} or a number, found {beta_loss!r}.")
    return float(beta_loss)


def _weight(name: str, value: Any) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not float(value) >= 0:
        raise CofactorError(f"{name}: expected a number >= 0, found {value!r}.")
    return float(value)
