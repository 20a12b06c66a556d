"""Where noise comes from: the operating system's generator, or, for tests only, a seed that is on record."""

from __future__ import annotations

import os

import numpy as np

from cofactor.privacy.errors import ParameterError
from cofactor.types import Array


class Source:
    """Uniform random bits from ``os.urandom``; with ``insecure_seed`` they can be guessed and nothing is private."""

    def __init__(self, *, insecure_seed: int | None = None) -> None:
        self.insecure_seed = insecure_seed
        self._rng = None if insecure_seed is None else np.random.default_rng(insecure_seed)

    @property
    def secure(self) -> bool:
        """Whether the bits are fit for privacy."""
        return self._rng is None

    def raw(self, n: int) -> bytes:
        """Return n random bytes."""
        return os.urandom(n) if self._rng is None else self._rng.bytes(n)

    def words(self, n: int) -> Array:
        """Return n uniform 64-bit words (uint64)."""
        return np.frombuffer(self.raw(8 * n), dtype="<u8").astype(np.uint64, copy=False)

    def bits(self, n: int) -> Array:
        """Return n fair coins (bool)."""
        packed = np.frombuffer(self.raw((n + 7) // 8), dtype=np.uint8)
        return np.unpackbits(packed, count=n).astype(bool)

    def below(self, bound: int, n: int) -> Array:
        """Return about n (at least one) uniform integers in [0, bound) as int64, without modulo bias.

        Words are cut to the bit length of the bound and refused above it; fewer than n may be left.
        """
        if not 0 < bound <= 1 << 62:
            raise ParameterError(f"bound must be in [1, 2^62]. Found {bound}.")
        mask = np.uint64((1 << (bound - 1).bit_length()) - 1)
        while True:
            drawn = (self.words(max(n, 8)) & mask).astype(np.int64)
            kept = drawn[drawn < bound]
            if kept.size:
                return kept

    def __repr__(self) -> str:
        return "Source()" if self.secure else f"Source(insecure_seed={self.insecure_seed})"
