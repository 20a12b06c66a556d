"""Penalties of a run, as scikit-learn's NMF names them, as options of its method."""

from __future__ import annotations

from typing import Any

from cofactor.estimators import losses
from cofactor.jobs.settings import Settings
from cofactor.types import CofactorError


def options(settings: Settings) -> dict[str, Any]:
    """Return the options that the penalties of a run amount to; none where it has none."""
    if settings.alpha_h is None and settings.alpha_w == settings.l1_ratio == 0:
        return {}
    of_factor = "same" if settings.alpha_h is None else settings.alpha_h
    found = losses.options("frobenius", settings.alpha_w, of_factor, settings.l1_ratio)
    if found and settings.method not in losses.METHODS:
        raise CofactorError(
            f"--alpha-W, --alpha-H: expected a method that takes them ({', '.join(losses.METHODS)}), found "
            f"{settings.method!r}."
        )
    if settings.l1_ratio and not found:
        raise CofactorError("--l1-ratio: expected --alpha-W or --alpha-H to go with it, found neither.")
    return {name: list(value) for name, value in found.items()}
