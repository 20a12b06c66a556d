"""Exact noise on the integers, in blocks: the Gaussian rounded to the grid.

Everything reduces to coins of probability exp(-gamma) (Karney 2016, "Sampling exactly from the normal
distribution"; Canonne, Kamath and Steinke 2020 for the coins). A coin compares a 64-bit uniform u with
exp(-gamma) in floating point; where the two are closer than ``SLACK``, far above any rounding error here (below
2^-46), it is settled with 128-bit u and 60-digit arithmetic. So blocks of numpy are enough, and the law of every
value is within 2^-80 of the ideal one in total variation.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from cofactor.privacy.errors import ParameterError
from cofactor.privacy.randomness import Source
from cofactor.types import Array

SLACK = 2.0**-40
STAGES = np.exp(-np.arange(24.0, 0.0, -1.0))
"""The chances of 24 stages and more, of 23, ..., of one."""
MAX_SCALE = 2.0**48
"""The largest noise scale in grid units, 1.6e7 in values: draws stay below 2^53, where floats still count."""
BLOCK = 1 << 16
"""Draws that are made at a time: what they need stays in the cache, in a third less time than millions at once."""


def coins(gamma: Array, exact: Callable[[int], Fraction], source: Source) -> Array:
    """Return independent coins that are True with probability ``exp(-gamma_i)``; ``exact(i)`` is gamma_i itself."""
    words = source.words(gamma.size)
    gap = np.exp(-gamma) - words * 2.0**-64
    heads = gap > 0
    for i in np.flatnonzero(np.abs(gap) < SLACK):
        heads[i] = _settle(int(words[i]), exact(int(i)), source)
    return np.asarray(heads)


def rounded_gaussian(sigma: float, n: int, source: Source) -> Array:
    """Return n draws of N(0, sigma^2), each rounded to the nearest integer (int64)."""
    _check_scale(sigma)
    sizes = [min(BLOCK, n - begin) for begin in range(0, n, BLOCK)]
    return np.concatenate([np.empty(0, np.int64), *(_some(sigma, size, source) for size in sizes)])


def _some(sigma: float, n: int, source: Source) -> Array:
    """Return n draws at once.

    An exponential E = V + x (V geometric, x uniform and kept with exp(-x)) is kept with ``exp(-(E - 1)^2 / 2)``: a
    half-normal. Rounding a product that is too close to a half is settled with 128 bits of x.
    """
    whole, part = _repeat(n, lambda m: _half_normal(m, source))
    value = sigma * (whole + part * 2.0**-64)
    size = np.rint(value)
    close = np.abs(np.abs(value - size) - 0.5) <= value * 2.0**-50
    for i in np.flatnonzero(close):
        x = Fraction(2 * _extend(int(part[i]), source) + 1, 1 << 129)
        size[i] = round(Fraction(sigma) * (int(whole[i]) + x))
    return np.where(source.bits(n), -size, size).astype(np.int64)


def _half_normal(n: int, source: Source) -> tuple[Array, Array]:
    """Return integer parts and 64-bit fractions of some half-normal draws."""
    part = source.words(n)
    part = part[coins(part * 2.0**-64, lambda i: _middle(part[i]), source)]
    whole = _stages(part.size, source)
    gamma = (whole + part * 2.0**-64 - 1) ** 2 / 2
    kept = coins(gamma, lambda i: (int(whole[i]) + _middle(part[i]) - 1) ** 2 / 2, source)
    return whole[kept], part[kept]


def _stages(n: int, source: Source) -> Array:
    """How many coins of probability 1/e fall before the first miss: v where ``e^-(v+1) <= u < e^-v``, u uniform.

    Beyond the last stage it begins anew, as coins do not remember.
    """
    words = source.words(n)
    u = words * 2.0**-64
    above = np.searchsorted(STAGES, u, side="right")
    near = np.minimum(np.abs(u - STAGES[np.maximum(above - 1, 0)]), np.abs(u - STAGES[above % len(STAGES)]))
    count = len(STAGES) - above
    for i in np.flatnonzero(near < SLACK):
        count[i] = _settle_stage(int(words[i]), source)
    last = np.flatnonzero(count == len(STAGES))
    if last.size:
        count[last] += _stages(last.size, source)
    return count


def _repeat(n: int, draw: Callable[[int], tuple[Array, ...]]) -> tuple[Array, ...]:
    """Draw blocks of independent values until there are n of them."""
    blocks = [draw(2 * n + 16)]
    while (missing := n - sum(b[0].size for b in blocks)) > 0:
        blocks.append(draw(2 * missing + 16))
    return tuple(np.concatenate(columns)[:n] for columns in zip(*blocks))


def _settle(word: int, gamma: Fraction, source: Source) -> bool:
    with localcontext() as context:
        context.prec = 60
        chance = (-Decimal(gamma.numerator) / Decimal(gamma.denominator)).exp()
        return _uniform(word, source) < chance


def _settle_stage(word: int, source: Source) -> int:
    with localcontext() as context:
        context.prec = 60
        u, stage = _uniform(word, source), 0
        while stage < len(STAGES) and u < Decimal(-stage - 1).exp():
            stage += 1
        return stage


def _uniform(word: int, source: Source) -> Decimal:
    """Return the middle of the 128-bit cell that begins with a word."""
    return Decimal(2 * _extend(word, source) + 1) / Decimal(1 << 129)


def _extend(word: int, source: Source) -> int:
    return (word << 64) | int(source.words(1)[0])


def _middle(word: np.uint64) -> Fraction:
    return Fraction(2 * int(word) + 1, 1 << 65)


def _check_scale(scale: float) -> None:
    if not 0 < scale <= MAX_SCALE:
        raise ParameterError(f"the noise scale must be in (0, 2^48] grid units. Found {scale:g}; scale the data down.")
