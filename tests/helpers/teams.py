"""A team whose processes are threads: whatever several processes do together can be watched in one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from cofactor.engines.session import TeamSession, opened
from cofactor.engines.team import ProcessError, Team, told_of
from cofactor.jobs.config import Config
from cofactor.method import Method
from cofactor.plan import Plan
from cofactor.types import Array, Data

SECONDS = 60


class Meeting:
    """Where the threads meet: everyone brings a value and leaves with those of all."""

    def __init__(self, count: int) -> None:
        self.values: list[Any] = [None] * count
        self.barrier = threading.Barrier(count, timeout=SECONDS)

    def __call__(self, here: int, value: Any) -> list[Any]:
        """Bring a value; return those of all."""
        self.values[here] = value
        self.barrier.wait()
        told = list(self.values)
        self.barrier.wait()
        return told


class Member(Team):
    """One of several threads, which meet like processes."""

    def __init__(self, here: int, meeting: Meeting) -> None:
        self.here, self.meeting = here, meeting
        self.count = len(meeting.values)

    def exchange(self, where: str, value: Any = None, *, error: Exception | None = None) -> list[Any]:
        """Meet all threads; return their values, or raise the error that one brought."""
        told = self.meeting(self.here, (where, None if error is None else told_of(error), value))
        for process, (_, text, _) in enumerate(told):
            if text is not None:
                raise ProcessError(f"process {process}: {text}") from error
        assert len({place for place, _, _ in told}) == 1, [place for place, _, _ in told]
        return [value for _, _, value in told]

    def sum(self, numbers: Array) -> Array:
        """Add a flat array over all threads."""
        return np.sum(self.exchange("sum", numbers.copy()), axis=0)

    def gather(self, data: bytes, sizes: list[int]) -> list[Array]:
        """Return the bytes of every thread."""
        return [np.frombuffer(part, np.uint8) for part in self.exchange("gather", data)]

    def threads(self) -> int:
        """One: the machine is shared."""
        return 1


class Threads:
    """The engine of one thread of a team."""

    remote = False

    def __init__(self, team: Team) -> None:
        self.team = team

    def open(self, method: Method, Xs: Sequence[Data], plan: Plan) -> AbstractContextManager[TeamSession]:
        """Open the session of this thread."""
        return opened(self.team, method, Xs, plan, workers=1)


def together(count: int, work: Callable[[Threads], Any]) -> list[Any]:
    """Call the work in ``count`` threads, each with its engine; return what they returned, or raise the first error.

    A configuration that is carried in one of them is carried by its engine.
    """
    meeting, own = Meeting(count), threading.local()
    results: list[Any] = [None] * count
    errors: list[BaseException | None] = [None] * count

    def go(here: int) -> None:
        own.engine = Threads(Member(here, meeting))
        try:
            results[here] = work(own.engine)
        except BaseException as error:
            errors[here] = error
            if not isinstance(error, ProcessError):  # the others would wait for ever
                meeting.barrier.abort()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Config, "carrier", lambda config: own.engine)
        threads = [threading.Thread(target=go, args=(here,)) for here in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [error for error in errors if error is not None and not isinstance(error, threading.BrokenBarrierError)]
    if found:
        raise found[0]
    return results
