"""What a run gives to the mathematics of its clients for as long as it goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np

from cofactor.local.graphs import kept
from cofactor.local.threads import lend

REUSED = 31 << 20
"""Bytes of an array, at most, whose memory is there for the next one: the C library of Linux goes up to 32 MB."""


@contextmanager
def working(threads: int) -> Iterator[None]:
    """Lend it threads, and keep what a device repeats."""
    _reuse_memory()
    with lend(threads), kept():
        yield


@cache
def _reuse_memory() -> None:
    """Free one large array, once a process: smaller ones are no longer given back to the system when they are freed.

    The allocator learns from it (``mallopt(3)``, dynamic threshold). A round makes and frees the same arrays as the
    last, and new pages for each of them took up to a fifth of a fit.
    """
    np.empty(REUSED, np.uint8)
