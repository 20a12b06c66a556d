"""Addressed random streams of the data folder."""

from __future__ import annotations

import numpy as np


def generator(seed: int, *address: int, purpose: str) -> np.random.Generator:
    """Return the stream at ``[seed, *address, purpose]``; the same address always gives the same stream.

    The purpose is part of the address because data and a run often share one seed: without it a method that
    starts from ``[seed, client]`` would draw the very numbers that were planted. It comes last because numpy
    ignores trailing zeros, so that ``[seed]`` and ``[seed, 0]`` alone would be one stream.
    """
    return np.random.default_rng([seed, *address, int.from_bytes(purpose.encode(), "big")])
