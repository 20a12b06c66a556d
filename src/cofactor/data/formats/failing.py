"""Errors in the middle of a file, which a thread reads long after somebody named it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cofactor.types import CofactorError, DataError


@contextmanager
def rows_of(path: Path, start: int, stop: int) -> Iterator[None]:
    """Say of which file and which rows an error is; libraries know neither, or keep them to themselves."""
    try:
        yield
    except (CofactorError, MemoryError):
        raise
    except Exception as error:
        text = f"{path}: rows {start}:{stop} could not be read: {type(error).__name__}: {error}"
        raise DataError(text) from error
