"""Errors in the middle of a file, which a thread reads long after somebody named it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cofactor.types import CofactorError, DataError

State = tuple[int, ...]
"""By what a file is known without a look at what is in it."""


@dataclass(frozen=True)
class OnDisk:
    """What all sources of rows in a file have in common: they read the file as it was when they were made, or nothing.

    ``state`` is by what it is known: its size, and when it was last written to. A folder may gain what is not read, and
    another machine has a copy of its own, known from its arrival there.
    """

    path: Path
    state: State | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Look at the file."""
        if self.state is None:
            object.__setattr__(self, "state", state_of(self.path))

    def __setstate__(self, fields: dict[str, Any]) -> None:
        """Look at the file here."""
        self.__dict__.update(fields, state=state_of(fields["path"]))

    @contextmanager
    def rows(self, start: int, stop: int) -> Iterator[None]:
        """Say of which file and which rows an error is; libraries know neither, or keep them to themselves.

        What was read from a file that has changed by then belongs to nothing that was read before.
        """
        try:
            yield
        except (CofactorError, MemoryError):
            raise
        except Exception as error:
            text = f"{self.path}: rows {start}:{stop} could not be read: {type(error).__name__}: {error}"
            raise DataError(text) from error
        if state_of(self.path) != self.state:
            raise DataError(
                f"{self.path}: expected the file as it was opened, found that it has changed since; put it back, and "
                "leave it alone while it is read."
            )


def state_of(path: Path) -> State:
    """Return the size of a file and when it was last written to; nothing of a folder, or of what is not there."""
    if not path.is_file():
        return ()
    found = path.stat()
    return found.st_size, found.st_mtime_ns
