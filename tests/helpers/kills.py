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


DYING = """
import os, signal, sys
from cofactor import files
from cofactor.cli import main
from cofactor.methods.client_level import ClientLevel
where, times = sys.argv.pop(1), int(sys.argv.pop(1))
def reached(place):
    global times
    times -= place == where
    if times == 0: os.kill(os.getpid(), signal.SIGKILL)
files.reached = reached
step = ClientLevel.step
def stepped(self, data, shared, local, t, rng):
    with open("left", "a") as file: file.write(f"{data[0, 0]}-{t}\\n")
    reached("step")
    return step(self, data, shared, local, t, rng)
ClientLevel.step = stepped
main()
"""
"""A command that is killed when it reaches a place (or a step) for the so many-th time; ``left`` has a line for each
message that a client leaves: its first cell and the round."""
