"""What a run gives to the mathematics of its clients for as long as it goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cofactor.local.graphs import kept
from cofactor.local.threads import lend


@contextmanager
def working(threads: int) -> Iterator[None]:
    """Lend it threads, and keep what a device repeats."""
    with lend(threads), kept():
        yield
