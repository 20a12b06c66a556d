"""Faults that are put between any two steps on the way to the disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cofactor import files


class Killed(BaseException):
    """The power fails; nothing that is meant for errors catches it."""


@contextmanager
def kill_at(point: int) -> Iterator[list[str]]:
    """End the run at a step, counted from 0; yields the steps that were reached."""
    seen: list[str] = []

    def reached(place: str) -> None:
        seen.append(place)
        if len(seen) > point:
            raise Killed(place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "reached", reached)
        yield seen
