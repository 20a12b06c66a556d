"""Shamir's secret sharing over the prime field of 2^521 - 1: any t shares give the secret, fewer give nothing."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import lru_cache

from cofactor.privacy.errors import ParameterError, TruncatedError

PRIME = (1 << 521) - 1
SHARE_BYTES = 66


def split(secret: bytes, threshold: int, *, points: int) -> list[bytes]:
    """Return the values at 1, ..., points of a random polynomial of degree t - 1 whose value at 0 is the secret."""
    if len(secret) >= SHARE_BYTES - 1:
        raise ParameterError(f"a secret of at most {SHARE_BYTES - 2} bytes was expected. Found {len(secret)}.")
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    constant = int.from_bytes(secret, "big")
    return [_value(coefficients, constant, x).to_bytes(SHARE_BYTES, "big") for x in range(1, points + 1)]


@lru_cache(maxsize=64)
def weights(points: tuple[int, ...]) -> dict[int, int]:
    """Return the Lagrange weights at zero, ``prod_{j != i} x_j / (x_j - x_i)``, for different points."""
    found = {}
    for x in points:
        above = below = 1
        for other in points:
            if other != x:
                above = above * other % PRIME
                below = below * (other - x) % PRIME
        found[x] = above * pow(below, -1, PRIME) % PRIME
    return found


def join(shares: Mapping[int, bytes], length: int, *, weights: Mapping[int, int]) -> bytes | None:
    """Return the secret of ``length`` bytes from shares by point; None if they do not belong together."""
    total = sum(weights[x] * parse(share) for x, share in shares.items()) % PRIME
    return total.to_bytes(length, "big") if total < 1 << (8 * length) else None


def parse(share: bytes) -> int:
    """Return a share as a field element; :class:`TruncatedError` if it is none."""
    if len(share) != SHARE_BYTES:
        raise TruncatedError(f"a share of {SHARE_BYTES} bytes was expected. Found {len(share)}.")
    value = int.from_bytes(share, "big")
    if value >= PRIME:
        raise TruncatedError("a share must be below 2^521 - 1.")
    return value


def _value(coefficients: list[int], constant: int, x: int) -> int:
    value = 0
    for a in coefficients:
        value = (value + a) * x % PRIME
    return (value + constant) % PRIME
