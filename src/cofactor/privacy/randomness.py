"""Where noise comes from: the operating system's generator, a secret seed of it, or, for tests only, one on record."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from cofactor.types import Array


class Source:
    """Uniform random bits from ``os.urandom``; with ``insecure_seed`` they can be guessed and nothing is private.

    With ``seed`` (32 secret bytes) they are the stream of ChaCha20, and whoever is told the seed can draw them again.
    """

    def __init__(self, *, insecure_seed: int | None = None, seed: bytes | None = None) -> None:
        self.insecure_seed = insecure_seed
        self._rng = None if insecure_seed is None else np.random.default_rng(insecure_seed)
        self._stream = None if seed is None else _stream(seed)

    @property
    def secure(self) -> bool:
        """Whether the bits are fit for privacy."""
        return self._rng is None

    def raw(self, n: int) -> bytes:
        """Return n random bytes."""
        if self._stream is not None:
            return self._stream(n)
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


def _stream(seed: bytes) -> Callable[[int], bytes]:
    from cofactor.privacy.secure_sum.primitives import stream  # needs the extra "secure"

    return stream(seed)
