"""Where noise comes from: the operating system's generator, a secret seed of it, or, for tests only, one on record."""

from __future__ import annotations

import hashlib
import os

import numpy as np

from cofactor.types import Array


class Source:
    """Uniform random bits from ``os.urandom``; with ``insecure_seed`` they can be guessed and nothing is private.

    With ``seed`` (32 secret bytes) they are streams of SHAKE-256, and whoever is told the seed can draw them again.
    """

    def __init__(self, *, insecure_seed: int | None = None, seed: bytes | None = None) -> None:
        self.insecure_seed, self._seed, self._drawn = insecure_seed, seed, 0
        self._rng = None if insecure_seed is None else np.random.default_rng(insecure_seed)

    @property
    def secure(self) -> bool:
        """Whether the bits are fit for privacy."""
        return self._rng is None

    def raw(self, n: int) -> bytes:
        """Return n random bytes."""
        if self._seed is not None:
            self._drawn += 1
            return hashlib.shake_256(b"cofactor noise 1" + self._seed + self._drawn.to_bytes(8, "big")).digest(n)
        return os.urandom(n) if self._rng is None else self._rng.bytes(n)

    def words(self, n: int) -> Array:
        """Return n uniform 64-bit words (uint64)."""
        return np.frombuffer(self.raw(8 * n), dtype="<u8").astype(np.uint64, copy=False)

    def bits(self, n: int) -> Array:
        """Return n fair coins (bool)."""
        packed = np.frombuffer(self.raw((n + 7) // 8), dtype=np.uint8)
        return np.unpackbits(packed, count=n).astype(bool)

    def __repr__(self) -> str:
        return "Source()" if self.secure else f"Source(insecure_seed={self.insecure_seed})"
