"""Accounting beyond Gaussians, by the dp-accounting package (extra ``dp``): privacy loss distributions and RDP.

Always the add-or-remove-one relation, with the sensitivity inside the multiplier: the package's replace-one relation
doubles the sensitivity in one accountant and not in the other.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import reduce
from importlib import import_module
from typing import Any, Protocol

from cofactor.privacy.errors import MissingExtraError


class Mechanism(StrEnum):
    """How a release was randomized."""

    GAUSSIAN = "Gaussian"
    DISCRETE_GAUSSIAN = "discrete Gaussian"
    LAPLACE = "Laplace"
    RANDOMIZED_RESPONSE = "randomized response"


class Release(Protocol):
    """What an accountant reads of a cost."""

    @property
    def mechanism(self) -> Mechanism:
        """How it was randomized."""
        ...

    @property
    def multiplier(self) -> float:
        """Noise scale over sensitivity; 1 / eps0 for randomized response."""
        ...

    @property
    def count(self) -> int:
        """How often it was released."""
        ...

    @property
    def sampling(self) -> float:
        """Poisson rate at which a unit takes part."""
        ...


def epsilon(releases: Iterable[Release], delta: float) -> float:
    """Return the epsilon of the composed privacy loss distribution (upper bound, grid 1e-4).

    A discrete Gaussian is read as a scalar integer count of sensitivity 1; for vectors only zCDP is proven.
    """
    parts = [_BUILDERS[r.mechanism](r).self_compose(r.count) for r in releases if r.count]
    if not parts:
        return 0.0
    return float(reduce(lambda a, b: a.compose(b), parts).get_epsilon_for_delta(delta))


def rdp_epsilon(releases: Iterable[Release], delta: float) -> float:
    """Return the epsilon of Renyi accounting (Mironov 2017, with the conversion of Canonne et al. 2020)."""
    package = _package()
    accountant = package.rdp.RdpAccountant()
    with _quiet():
        for r in releases:
            if r.count:
                accountant.compose(package.SelfComposedDpEvent(_event(package, r), r.count))
        return float(accountant.get_epsilon(delta))


def _event(package: Any, release: Release) -> Any:
    z = release.multiplier
    simple: dict[Mechanism, Callable[[], Any]] = {
        Mechanism.GAUSSIAN: lambda: package.GaussianDpEvent(z),
        Mechanism.LAPLACE: lambda: package.LaplaceDpEvent(z),
        Mechanism.DISCRETE_GAUSSIAN: lambda: package.ZCDpEvent(0.5 / z**2),
        # eps0-DP is eps0^2/2-zCDP (Bun and Steinke 2016, proposition 1.4)
        Mechanism.RANDOMIZED_RESPONSE: lambda: package.ZCDpEvent(0.5 / z**2),
    }
    event = simple[release.mechanism]()
    return event if release.sampling == 1 else package.PoissonSampledDpEvent(release.sampling, event)


def _gaussian(release: Release) -> Any:
    return _losses().from_gaussian_mechanism(release.multiplier, sampling_prob=release.sampling)


def _laplace(release: Release) -> Any:
    return _losses().from_laplace_mechanism(release.multiplier, sampling_prob=release.sampling)


def _discrete_gaussian(release: Release) -> Any:
    return _losses().from_discrete_gaussian_mechanism(release.multiplier)


def _randomized_response(release: Release) -> Any:
    # the package keeps a bit with 1 - p and draws a fair one with p, so it flips with p / 2 = 1 / (1 + e^eps0)
    return _losses().from_randomized_response(2 / (1 + math.exp(1 / release.multiplier)), 2)


_BUILDERS: dict[Mechanism, Callable[[Release], Any]] = {
    Mechanism.GAUSSIAN: _gaussian,
    Mechanism.LAPLACE: _laplace,
    Mechanism.DISCRETE_GAUSSIAN: _discrete_gaussian,
    Mechanism.RANDOMIZED_RESPONSE: _randomized_response,
}


def _package() -> Any:
    try:
        for name in ("dp_accounting.pld", "dp_accounting.rdp"):
            import_module(name)
        return import_module("dp_accounting")
    except ImportError as error:
        raise MissingExtraError("dp-accounting", extra="dp", purpose="accounting beyond Gaussian noise") from error


def _losses() -> Any:
    return _package().pld.privacy_loss_distribution


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the package's warnings about Renyi orders it leaves out; leaving orders out only loosens the bound."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
