"""Audits: statistical lower bounds on what a release really leaks, to be held against its claim.

They find bugs and prove nothing. Each runs a positive control as well, the same release without noise: an audit that
does not catch it is blind and raises :class:`AuditError` instead of a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta, binom

from cofactor.privacy.errors import AuditError, ParameterError, ShapeError
from cofactor.types import Array

World = Callable[[bool, int], Array]
"""(worst-case record present, n) -> n scores, each from an independent run of the release."""

Canaries = Callable[[Array], Array]
"""(which of the m canaries are in, bool) -> one score per canary from a single run; high means in."""


@dataclass(frozen=True)
class Verdict:
    """A lower bound with its confidence, the claim, and the bound that the positive control reached."""

    lower: float
    claim: float
    control: float
    confidence: float

    @property
    def passed(self) -> bool:
        """Whether the evidence is compatible with the claim."""
        return self.lower <= self.claim

    def __str__(self) -> str:
        word = "passed" if self.passed else "FAILED"
        return (
            f"{word}: at least {self.lower:.4g} with confidence {self.confidence:g}, claimed {self.claim:.4g}; "
            f"without noise the audit finds {self.control:.4g}"
        )


def mu_lower(present: Array, absent: Array, confidence: float) -> float:
    """Return a lower bound on mu = Delta / sigma: ``Phi^-1(1 - fpr) - Phi^-1(fnr)`` at Clopper-Pearson upper ends."""
    fpr, fnr = _error_rates(present, absent, confidence)
    return max(0.0, float(-ndtri(fpr) - ndtri(fnr)))


def two_world(
    release: World, control: World, *, claim: float, releases: int = 200_000, confidence: float = 0.999
) -> Verdict:
    """Compare many releases with and without one worst-case record; sees noise that is 10 % too small at mu ~ 1.

    ``claim`` is the mu that the release is accounted with; ``control`` is the release with its noise taken out.
    """
    found = [mu_lower(world(True, releases), world(False, releases), confidence) for world in (release, control)]
    return _verdict(found, claim, confidence)


def one_run(
    release: Canaries,
    control: Canaries,
    *,
    canaries: int,
    claim: float,
    delta: float,
    rng: np.random.Generator,
    guesses: int | None = None,
    confidence: float = 0.999,
) -> Verdict:
    """Audit a whole run at once: m canaries are in or out by fair coins, and the scores tell which.

    The ``guesses`` / 2 highest scores are guessed in, as many lowest out, the auditor abstains on the others; the
    number of right guesses bounds epsilon (Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1)
    training run"). Halved noise is beyond its sight: use :func:`two_world` for that.
    """
    half = (canaries // 2 if guesses is None else guesses) // 2
    if not 0 < 2 * half <= canaries:
        raise ParameterError(f"between 2 and {canaries} guesses were expected. Found {guesses}.")
    found = []
    for run in (release, control):
        included = rng.random(canaries) < 0.5
        scores = np.asarray(run(included), dtype=np.float64)
        if scores.shape != (canaries,):
            raise ShapeError(f"{canaries} scores were expected. Found shape {scores.shape}.")
        order = np.argsort(scores, kind="stable")
        right = int(included[order[canaries - half :]].sum() + (~included[order[:half]]).sum())
        found.append(epsilon_from_guesses(right, 2 * half, canaries=canaries, delta=delta, confidence=confidence))
    return _verdict(found, claim, confidence)


def epsilon_from_guesses(right: int, guesses: int, *, canaries: int, delta: float, confidence: float = 0.999) -> float:
    """Return the largest epsilon that so many right guesses refute, by bisection; 0 if none."""
    if not 0 <= right <= guesses <= canaries:
        raise ParameterError(f"right <= guesses <= canaries was expected. Found {right}, {guesses}, {canaries}.")

    def refuted(epsilon: float) -> bool:
        return p_value(right, guesses, canaries=canaries, epsilon=epsilon, delta=delta) < 1 - confidence

    low, high = 0.0, 1.0
    if not refuted(low):
        return 0.0
    while refuted(high) and high < 64:
        low, high = high, 2 * high
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def p_value(right: int, guesses: int, *, canaries: int, epsilon: float, delta: float) -> float:
    """Return the chance of that many right guesses against an (epsilon, delta)-private run.

    ``P[B >= v] + 2 m delta max_i P[v - i <= B < v] / i`` with B binomial(r, e^eps / (1 + e^eps)).
    """
    q = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, q))
    if right == 0 or delta == 0:
        return min(1.0, tail)
    i = np.arange(1, right + 1)
    near = np.cumsum(binom.pmf(right - i, guesses, q)) / i
    return min(1.0, tail + 2 * canaries * delta * float(near.max()))


def _error_rates(present: Array, absent: Array, confidence: float) -> tuple[float, float]:
    """Upper ends of both error rates of one threshold; it comes from a tenth of the scores, the rates from the rest."""
    present, absent = (np.asarray(s, dtype=np.float64).ravel() for s in (present, absent))
    pilot = max(1, present.size // 10), max(1, absent.size // 10)
    middles = float(np.median(present[: pilot[0]])), float(np.median(absent[: pilot[1]]))
    sign = 1.0 if middles[0] >= middles[1] else -1.0
    threshold = sign * (middles[0] + middles[1]) / 2
    misses = sign * present[pilot[0] :] <= threshold
    alarms = sign * absent[pilot[1] :] > threshold
    return _upper(alarms, confidence), _upper(misses, confidence)


def _upper(events: Array, confidence: float) -> float:
    """Clopper-Pearson upper end; each of the two rates gets half of the error."""
    k, n = int(events.sum()), events.size
    return 1.0 if k == n else float(beta.ppf(1 - (1 - confidence) / 2, k + 1, n - k))


def _verdict(found: list[float], claim: float, confidence: float) -> Verdict:
    lower, control = found
    if control <= claim:
        raise AuditError(f"the audit is blind: without noise it finds {control:.4g}, not above the claim {claim:.4g}.")
    return Verdict(lower, claim, control, confidence)
