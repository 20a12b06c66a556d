"""The flare engine: clients in organisations of their own, over a network, each in a process that it keeps.

The server's side of a run. What carries the bytes is a wire: NVIDIA FLARE in :mod:`cofactor.federation`, or a call in
tests. Rounds, and with them the result, are those of the inline engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from cofactor.engines.checkpoint import Checkpoint, State
from cofactor.engines.contract import Answer, Callback, Finished, Streamed, Watch, Work, check_message
from cofactor.engines.flare_clients import Clients
from cofactor.engines.flare_format import FormatError
from cofactor.engines.flare_member import AFTER_STEP, WORK
from cofactor.engines.flare_refusals import LeftOut, Short
from cofactor.engines.history import Round, adds_up
from cofactor.engines.team import Team
from cofactor.method import Method
from cofactor.plan import ByShare, Plan, Stream
from cofactor.types import Array, ClientError, CofactorError, Data, Local, Shared

Read = Callable[[int, Any], Any]
"""(client, what it says at the end) -> what is made of it; raises :class:`FormatError`."""


@dataclass(frozen=True)
class Flare:
    """Clients that have agreed to a run (:mod:`cofactor.federation`); data stay where they are, and none is given here.

    Without ``clients`` it is only a name: `cofactor fit --engine flare` submits the run, and the server opens it.
    """

    clients: Clients | None = None
    n_features: int = 0
    read: Read = field(default=lambda client, found: found)
    remote = True

    @property
    def team(self) -> Team:
        """The server alone."""
        return Team()

    @contextmanager
    def open(self, method: Method, Xs: Sequence[Data], plan: Plan) -> Iterator[FlareSession]:
        """Begin with the clients that are there."""
        if self.clients is None:
            raise CofactorError(
                "the flare engine runs in a federation: `cofactor fit --engine flare --config run.toml --out run`."
            )
        if isinstance(plan.participation, ByShare):
            raise CofactorError("participation: a draw by share would show the rows of every client; give a share.")
        with threadpool_limits(1, "blas"):  # as every engine of several clients: sums are added in one order
            yield FlareSession(self, self.clients, method)


class FlareSession:
    """The server's side of a run: the clients, and the last round in which each one's answer was used."""

    masks = False
    aloof = True

    def __init__(self, engine: Flare, clients: Clients, method: Method) -> None:
        self.clients, self.method, self.read = clients, method, engine.read
        self.n_clients, self.n_features = len(clients.names), engine.n_features
        self.counted = self.before = np.full(self.n_clients, -1)
        self.asked = 0
        self.unkept: set[int] = set()
        least = clients.patience.least
        self.least = self.n_clients if least is None or method.traits.complete else min(least, self.n_clients)

    def round(self, shared: Shared, t: int, participants: Array) -> list[Answer]:
        """Let the participants step; return the checked messages of those that answer."""
        found = self._step(shared, t, participants, None)
        schema, answers = self.method.schema(self.n_features, t), []
        for j, value in found.items():
            try:
                message = value["answer"]
                check_message(message, schema, client=j, t=t)
            except ClientError:
                self.clients.drop(j, "reply")
                continue
            answers.append(Answer(np.array([j]), message))
        self._check([answer.client for answer in answers], len(participants), t)
        for answer in answers:
            self.counted[answer.client] = t
        return answers

    def used(self, clients: Sequence[int], t: int) -> None:
        """Count the steps of these clients; those of the others are taken back.

        What a private run has released it cannot release again: it goes on with the clients that there are.
        """
        if self.method.traits.allowance is None:
            self._check(clients, self.asked, t)
        self.counted[list(clients)] = t

    def _check(self, used: Sequence[int], asked: int, t: int) -> None:
        """End the job if too few have answered, or if one was given up whose part stays in the sums of the others."""
        self._enough(len(used), asked, t)
        if self.clients.absent - set(used) and adds_up(self.method.traits, t):
            raise LeftOut(self.clients.gone())

    def _step(self, shared: Shared, t: int, participants: Array, work: list[Any] | None) -> dict[int, Any]:
        """Order a step, and the others to join where a stage begins; notice who cannot keep its state."""
        others = set(range(self.n_clients)) - set(map(int, participants))
        if t in self.method.traits.stages and others:
            self.clients.ask("join", {j: {"t": t, "shared": shared} for j in sorted(others)})
        self.asked, self.before = len(participants), self.counted.copy()
        order = {"t": t, "shared": shared, "work": work}
        found = self.clients.ask("step", {int(j): order | {"counted": int(self.counted[j])} for j in participants})
        for j, value in found.items():
            if value["kept"] is False and j not in self.unkept:
                self.unkept.add(j)
                self.clients.tell(self.clients.names[j], "cannot write its state; the run goes on without")
        return found

    def _enough(self, answers: int, asked: int, t: int) -> None:
        least = min(self.least, asked)
        if answers < least:
            raise Short(
                f"round {t}: expected answers of at least {least} clients, found {answers}; the run can be resumed."
            )

    def stream(self, shared: Shared, stream: Stream, *, watch: Watch | None, callbacks: Sequence[Callback]) -> Streamed:
        """Let clients answer one by one, in real time."""
        from cofactor.engines import flare_stream

        more: Any = {"watch": watch, "callbacks": callbacks}
        return flare_stream.stream(self.clients, self.method, self.n_features, shared, stream, **more)

    def everywhere(self, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Let every client that is there do some known work; nothing else can be sent."""
        if WORK.get(work.__name__) is not work:
            raise CofactorError(f"expected work that clients know ({', '.join(WORK)}); code is never sent to them.")
        found = self.clients.everyone("do", [work.__name__, *arguments])
        if not found:
            raise Short("expected clients that answer, found none; the run can be resumed.")
        return list(found.values())

    def step(self, shared: Shared, t: int, participants: Array, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Let the participants step, and do some known work with their answers, where they are."""
        if AFTER_STEP.get(work.__name__) is not work:
            raise CofactorError(
                f"expected work that clients know ({', '.join(AFTER_STEP)}); code is never sent to them."
            )
        found = self._step(shared, t, participants, [work.__name__, *arguments])
        self._enough(len(found), len(participants), t)
        return [value["answer"] for value in found.values()]

    def blame(self, client: int) -> bool:
        """Name the client; the others go on without what it said, and its step does not count."""
        self.clients.drop(client, "reply")
        self.counted[client] = self.before[client]
        return True

    def save(self, checkpoint: Checkpoint, shared: Shared, history: list[Round]) -> None:
        """Write the server's part; clients have written theirs before they answered."""
        checkpoint.save(State(shared, [Local(self.counted)], history), Team())

    def load(self, checkpoint: Checkpoint) -> State | None:
        """Put every client back to the last round that counts for it; begin anew where one has lost that state."""
        saved = checkpoint.load(Team())
        if saved is None:
            return None
        last = len(saved.history) - 1
        known = saved.locals[0].codes
        counted = np.concatenate([known, np.full(self.n_clients - len(known), -1)])  # clients that came late
        for name in self.clients.names[len(known) :]:
            self.clients.tell(name, f"has come late, and takes part from round {last + 1} on")
        begun = max(t for t in self.method.traits.stages if t <= last)
        names, lost = {}, []
        for j, held in self._all("held", dict.fromkeys(range(self.n_clients))).items():
            after = f"after-{counted[j] + 1}"
            names[j] = after if counted[j] >= begun else f"joined-{begun}" if f"joined-{begun}" in held else ""
            if names[j] == after and after not in held:
                lost.append(self.clients.names[j])
        if lost and self.method.traits.allowance is not None:
            raise ClientError(f"client {lost[0]}: has lost its state, and a private round is never repeated.")
        if lost:
            self.clients.tell(lost[0], "has lost its state; the run begins anew")
            return None
        orders = {j: {"name": name, "counted": int(counted[j]), "stage": begun} for j, name in names.items()}
        self._all("restore", orders)
        self.counted = counted
        return saved

    def _all(self, op: str, orders: dict[int, Any]) -> dict[int, Any]:
        """Ask these clients, and insist: one that is back later would not know where the run is."""
        found = self.clients.ask(op, orders)
        if len(found) < len(orders):
            raise Short("expected all clients where the run goes on, found fewer; it can be resumed.")
        return found

    def finish(self, factor: Array, work: Sequence[Work]) -> Finished:
        """Let every client find its codes and keep them; return what they say. Without work there is nothing to do."""
        if not work:
            return Finished()
        found = self.clients.everyone("finish", {"factor": factor})
        if not found:
            raise Short("expected clients that answer, found none at the end; the run can be resumed.")
        findings = []
        for j, value in found.items():
            try:
                findings.append(self.read(j, value))
            except FormatError:
                self.clients.drop(j, "reply")
        if not findings:
            raise Short("expected clients that say how they end, found none; the run can be resumed.")
        return Finished([], findings)
