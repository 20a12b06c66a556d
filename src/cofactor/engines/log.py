"""What clients were sent, kept for those that are lost: on disk, when it is much."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from typing import Any

from cofactor.types import Array, Shared

LOG_BYTES = 64 << 20
"""So much is kept in memory."""


class Log:
    """What clients were sent since they joined or were saved: with it, whoever was lost can take all steps again."""

    def __init__(self) -> None:
        self.file: Any = SpooledTemporaryFile(LOG_BYTES)  # noqa: SIM115
        self.last = -1

    def add(self, shared: Shared, t: int, participants: Array) -> None:
        """Keep what clients are told in round t."""
        self.file.seek(0, 2)
        pickle.dump((shared, t, participants), self.file)
        self.last = t

    def clear(self) -> None:
        """Forget all of it."""
        self.file.seek(0)
        self.file.truncate()

    def __iter__(self) -> Iterator[tuple[Shared, int, Array]]:
        end, place = self.file.seek(0, 2), 0
        while place < end:
            self.file.seek(place)
            yield pickle.load(self.file)
            place = self.file.tell()
