"""What scikit-learn calls a loss and its penalties, as options of ``exact-beta``."""

from __future__ import annotations

from numbers import Real
from typing import Any

from cofactor.types import CofactorError, unknown

NAMED = {"frobenius": 2.0, "kullback-leibler": 1.0, "itakura-saito": 0.0}


def options(beta_loss: Any, alpha_W: Any, alpha_H: Any, l1_ratio: Any) -> dict[str, Any]:
    """Return the options that differ from plain least squares; none where nothing does.

    >>> options("kullback-leibler", 0.0, "same", 0.0)
    {'beta': 1.0, 'codes_penalty': (0.0, 0.0), 'factor_penalty': (0.0, 0.0)}
    >>> options("frobenius", 0.0, "same", 0.0)
    {}
    """
    beta = _beta(beta_loss)
    ratio = _weight("l1_ratio", l1_ratio)
    if ratio > 1:
        raise CofactorError(f"l1_ratio: expected a number from 0 to 1, found {l1_ratio!r}.")
    of_codes = _weight("alpha_W", alpha_W)
    of_factor = of_codes if alpha_H == "same" else _weight("alpha_H", alpha_H)
    if beta == 2 and not of_codes and not of_factor:
        return {}
    codes, factor = ((alpha * ratio, alpha * (1 - ratio)) for alpha in (of_codes, of_factor))
    return {"beta": beta, "codes_penalty": codes, "factor_penalty": factor}


def _beta(beta_loss: Any) -> float:
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
