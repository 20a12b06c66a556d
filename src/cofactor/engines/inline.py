"""The inline engine: all clients in this process, in threads, many tiny ones as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from cofactor.engines.session import TeamSession, opened
from cofactor.engines.team import Team
from cofactor.method import Method
from cofactor.plan import Plan
from cofactor.types import Data


@dataclass(frozen=True)
class Inline:
    """Threads of this process; ``workers`` of them (default: one for each core).

    Answers are collected in client order and every random number is addressed by (seed, client, round), so the
    result does not depend on ``workers`` or on scheduling. With a ``device`` of torch ("cuda", or "cpu" for the same
    code without one) the data are put there once, and clients and server work there, one after the other.
    """

    workers: int | None = None
    device: Any = None
    remote = False
    team = Team()

    def open(self, method: Method, Xs: Sequence[Data], plan: Plan) -> AbstractContextManager[TeamSession]:
        """Check the data, start the threads, and stop them at the end."""
        return opened(self.team, method, Xs, plan, workers=self.workers, device=self.device)
