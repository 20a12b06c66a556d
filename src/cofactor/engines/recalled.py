"""Messages that a server has kept, in the place of what clients would send again: nothing leaves a client twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from cofactor.engines.checkpoint import Checkpoint, State
from cofactor.engines.contract import Answer, Session, WrappedSession, Wrapping
from cofactor.engines.history import Round
from cofactor.method import Method
from cofactor.plan import Plan
from cofactor.types import Array, Data, Message, Shared


@dataclass(frozen=True)
class Recalled(Wrapping):
    """Wrap any engine: in round 0 of this method, clients whose message is kept do not step, and others do.

    It is for methods of one upload, whose server may merge other messages than those that came together: without a
    client that is to be forgotten, or with one that comes late.
    """

    method: Method
    kept: Mapping[int, Message]

    @contextmanager
    def open(self, method: Method, Xs: Sequence[Data], plan: Plan) -> Iterator[Session]:
        """Open the engine; other questions than this method are asked as ever."""
        with self.engine.open(method, Xs, plan) as session:
            yield RecalledSession(session, self.kept) if method == self.method else session


class RecalledSession(WrappedSession):
    """The clients of an engine, and the messages that some of them have sent before."""

    def __init__(self, session: Session, kept: Mapping[int, Message]) -> None:
        super().__init__(session)
        self.kept = kept

    def round(self, shared: Shared, t: int, participants: Array) -> list[Answer]:
        """Return kept messages of the participants, and those of the others, who step; in client order."""
        if t > 0:
            return self.session.round(shared, t, participants)
        known = np.isin(participants, list(self.kept))
        found = [Answer(np.array([j]), self.kept[int(j)]) for j in participants[known]]
        if not known.all():
            found += self.session.round(shared, t, participants[~known])
        return sorted(found, key=lambda answer: answer.client)

    def save(self, checkpoint: Checkpoint, shared: Shared, history: list[Round]) -> None:
        """Save nothing: the one round is over, and its messages are kept."""

    def load(self, checkpoint: Checkpoint) -> State | None:
        """There is nothing to go on from."""
        return None
