"""How far long work has come, for whoever listens to the logger ``cofactor.progress``: one line for each piece."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
LOG = logging.getLogger("cofactor.progress")


def counted(work: Callable[[T], R], total: int, what: str) -> Callable[[T], R]:
    """Return ``work`` that says after every item how many of ``total`` are done; threads may share it."""
    done = count(1)

    def told(item: T) -> R:
        found = work(item)
        LOG.info("%s: %d of %d", what, next(done), total)
        return found

    return told
