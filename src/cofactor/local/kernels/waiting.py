"""Say that loops are being compiled, where that takes so long that people wonder: once, in a new installation.

Nobody looks for garbage meanwhile: a compiler makes millions of objects and keeps them, and to go through them again
and again took an eighth of its time.
"""

from __future__ import annotations

import gc
import logging
import time
from threading import Lock, Timer
from typing import Any

import numba  # whole, as in `lines`

AFTER = 2.0
"""Seconds of compiling in all, from which on it is said."""
TEXT = "compiling loops for this machine, once: up to a minute; later runs find them on disk."
LOG = logging.getLogger("cofactor")
"""What it says is seen unless somebody has set up logging, and then where they want it."""


class Waiting(numba.core.event.Listener):
    """Hears when numba compiles (not when it finds what it compiled before), and tells it once a process."""

    def __init__(self) -> None:
        self.lock, self.depth, self.since, self.spent = Lock(), 0, 0.0, 0.0
        self.timer: Timer | None = None
        self.told, self.collects = False, False

    def on_start(self, event: Any) -> None:
        """Wait for what is left of the time until it is told; one kernel may begin another."""
        with self.lock:
            self.depth += 1
            if self.depth == 1:
                self.collects = gc.isenabled()
                gc.disable()
            if self.depth == 1 and not self.told:
                self.since = time.monotonic()
                self.timer = Timer(max(AFTER - self.spent, 0.0), self.tell)
                self.timer.daemon = True
                self.timer.start()

    def on_end(self, event: Any) -> None:
        """Count the time."""
        with self.lock:
            self.depth -= 1
            if self.depth == 0 and self.collects:
                gc.enable()
            if self.depth == 0 and self.timer is not None:
                self.timer.cancel()
                self.spent += time.monotonic() - self.since

    def tell(self) -> None:
        """Tell it."""
        self.told = True
        LOG.warning(TEXT)


def listen() -> None:
    """Listen from now on, in this process."""
    numba.core.event.register("numba:compile", Waiting())
