"""Secure summation around any engine: clients mask their messages where they live, and the server sees their sum."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from cofactor.engines import ends
from cofactor.engines.contract import (
    Answer,
    Callback,
    Engine,
    Finished,
    Rebuilt,
    Session,
    Watch,
    Work,
    WrappedSession,
    Wrapping,
)
from cofactor.engines.host import Host
from cofactor.engines.inline import Inline
from cofactor.engines.paying import check_repeat
from cofactor.method import Method
from cofactor.methods.planned import NO_BUFFER
from cofactor.methods.refusals import not_additive
from cofactor.plan import Plan, Stream
from cofactor.privacy.errors import ParameterError, PrivacyError
from cofactor.privacy.secure_sum.messages import Terms
from cofactor.privacy.secure_sum.neighbours import MIN_CLIENTS, bound, check_enough
from cofactor.privacy.secure_sum.packing import Schema
from cofactor.types import Array, Data, Message, Shared

if TYPE_CHECKING:  # needs the extra "secure"
    from cofactor.privacy.secure_sum.keys import Keys

SMALL = 2.0**-10
EXCHANGED = "Round keys are signed with long-term keys that were exchanged beforehand."
SAME_CHANNEL = (
    "Long-term keys are made when the run begins and come over the same channel as the messages: signatures do not "
    "protect from a server that hands out keys of its own."
)
DIFFERENCES = (
    "Sums are over other clients in every round: they can be subtracted from each other, and over rounds may tell of "
    "single clients."
)


def in_words(plan: Plan, clients: int, *, keys: bool) -> str:
    """Say what the masks of a run rest on: how many may collude, how the keys came, and whether clients change."""
    text = str(bound(plan.participants(clients)))
    found = [f"{text[0].upper()}{text[1:]}.", EXCHANGED if keys else SAME_CHANNEL]
    return " ".join([*found, DIFFERENCES] if plan.participation != 1 and plan.privacy is None else found)


@dataclass(frozen=True)
class Secure(Wrapping):
    """Wrap any engine: every round is one secure summation over its participants, at least three.

    Clients sign the fresh keys of every round with long-term keys. With ``keys``
    (:class:`~cofactor.privacy.secure_sum.keys.Keys`) these are files that were exchanged beforehand, read where a
    client lives; without, they are made when the run starts, and come over the same channel as the messages. Values
    travel as multiples of 2^-24, so data should be of a scale of about 1.
    """

    engine: Engine = field(default_factory=Inline)
    keys: Keys | None = None

    @contextmanager
    def open(self, method: Method, Xs: Sequence[Data], plan: Plan) -> Iterator[SecureSession]:
        """Refuse what is not additive; open the engine and hand out the keys."""
        if not method.traits.additive:
            raise PrivacyError(not_additive(method.traits.kind))
        plan = plan if plan.secure else replace(plan, secure=True)
        if plan.participation != 1 and method.traits.allowance is None and self.team.here == 0:
            warnings.warn(f"participation: {DIFFERENCES} Let all clients take part, or add noise.", stacklevel=4)
        with self.engine.open(method, Xs, plan) as session:
            yield SecureSession(session, self.keys)


class SecureSession(WrappedSession):
    """The clients of an engine with their keys."""

    masks = True

    def __init__(self, session: Session, keys: Keys | None = None) -> None:
        if keys is not None and len(keys.names) != session.n_clients:
            raise PrivacyError(
                f"keys: expected {session.n_clients} names, one for each client. Found {len(keys.names)}."
            )
        super().__init__(session)
        self.keys, self.aloof = keys, session.aloof
        self.registry: dict[int, bytes] = {}

    def round(self, shared: Shared, t: int, participants: Array) -> list[Answer]:
        """Step the participants, and add their messages up under masks; clients that were lost have lost their keys."""
        self._check_drawn(t, len(participants))
        check_parts(self.method, len(participants))
        while True:
            try:
                self.registry = self.registry or _merged(self.session.everywhere(new_keys, self.keys))
            except Rebuilt:
                continue
            try:
                return [self._added_up(shared, t, participants)]
            except Rebuilt:
                self.registry = {}
                check_repeat(self.method, t)

    def _check_drawn(self, t: int, drawn: int) -> None:
        """Refuse a round for which too few of enough clients were drawn."""
        if drawn < MIN_CLIENTS <= self.n_clients:
            raise ParameterError(
                f"participation: round {t} drew {drawn} of {self.n_clients} clients, and a secure sum needs at least "
                f"{MIN_CLIENTS} to hide each of them. Take a higher participation, of "
                f"{MIN_CLIENTS / self.n_clients:.2g} or more, or secure=False."
            )

    def _added_up(self, shared: Shared, t: int, participants: Array) -> Answer:
        from cofactor.privacy.secure_sum.protocol import add_messages

        schema = self.method.schema(self.n_features, t)
        heads = _merged(self.session.step(shared, t, participants, bring, schema))
        name = self.session.everywhere(token)[0]  # never used again
        clients = tuple(int(j) for j in participants)
        sums, found = add_messages(name, clients, schema, registry=self.registry, ask=self._ask, blame=self.blame)
        self.session.used(found.survivors, t)
        costs, dtypes = next(iter(heads.values()))
        sums = sums._replace(cost=costs, dtypes=dtypes)
        if found.spares:
            sums = self.method.traits.allowance.spared(sums, found.spares.values())
        self.session.everywhere(check_scale, sums, t)
        return Answer(np.array(found.survivors), sums, found.sent)

    def _ask(self, terms: Terms, inbox: dict[int, Any]) -> dict[int, bytes]:
        """Carry one phase to all clients."""
        return _merged(self.session.everywhere(answer, terms, self.registry, inbox))

    def stream(self, shared: Shared, stream: Stream, *, watch: Watch | None, callbacks: Sequence[Callback]) -> NoReturn:
        """Refuse: an update that arrives alone has no sum to hide in."""
        raise PrivacyError(NO_BUFFER)

    def finish(self, factor: Array, work: Sequence[Work]) -> Finished:
        """Let clients find their codes; what they find besides, flat arrays, is added up under masks, too.

        Of a private run nothing is said.
        """
        while True:
            try:
                done = self.session.finish(factor, work)
                said = bool(work) and self.method.traits.allowance is None
                return replace(done, findings=self._found() if said else [])
            except Rebuilt:
                self.registry = {}

    def _found(self) -> list[Array]:
        """Return the sum of what clients have found; nothing where too few are left to hide in."""
        from cofactor.privacy.secure_sum.protocol import add_messages

        self.registry = self.registry or _merged(self.session.everywhere(new_keys, self.keys))
        clients = tuple(sorted(_merged(self.session.everywhere(ends.bring_found))))
        if len(clients) < MIN_CLIENTS:
            return []
        name = self.session.everywhere(token)[0]
        more: Any = {"registry": self.registry, "ask": self._ask, "blame": self.blame}
        return [ends.total(add_messages(name, clients, ends.SCHEMA, **more)[0])]


def check_parts(method: Method, participants: int) -> None:
    """Refuse a round in which the honest among those that must answer would not carry the whole noise."""
    if (allowance := method.traits.allowance) is None:
        check_enough(participants)
    else:
        allowance.check_round(participants)


def _merged(parts: list[dict[int, Any]]) -> dict[int, Any]:
    return {client: value for part in parts for client, value in part.items()}


def new_keys(host: Host, keys: Keys | None) -> dict[int, bytes]:
    """Host: read, or make, the long-term keys of the clients here; return the public ones.

    A host that has keys of its own (``host.kept["keys"]``) takes those, whatever the server says.
    """
    from cofactor.privacy.secure_sum.protocol import Members

    host.kept["members"] = Members(range(host.first, host.first + host.count), host.kept.get("keys", keys))
    return host.kept["members"].publics


def bring(host: Host, answers: list[Answer], schema: Schema) -> dict[int, tuple[Any, Any]]:
    """Host: keep the messages of the participants here; return what they cost and the types of their arrays."""
    messages = {found.client: found.message for found in answers}
    host.kept["messages"] = messages
    host.kept["members"].bring(messages, schema)
    return {client: (m.cost, dict.fromkeys(m.arrays, "f8")) for client, m in messages.items()}


def forget(host: Host) -> None:
    """Host: have nothing to add to a sum: what was brought belongs to a step that was taken back."""
    if "members" in host.kept:
        host.kept["members"].bring({}, {})


def token(host: Host) -> bytes:
    """Host: draw a name for a session."""
    return secrets.token_bytes(16)


def answer(host: Host, terms: Terms, registry: dict[int, bytes], inbox: dict[int, Any]) -> dict[int, bytes]:
    """Host: return what the clients here say in the next phase, if these are terms to which they may answer."""
    check_parts(host.method, len(terms.clients))
    return host.kept["members"].answer(terms, registry, inbox)


def check_scale(host: Host, sums: Message, t: int) -> None:
    """Host: refuse arrays so small that rounding to 2^-24 has eaten their digits; a single number (a loss) may be."""
    messages = host.kept["messages"].values()
    for name, a in sums.arrays.items():
        top = float(np.abs(a).max(initial=0.0))
        if np.ndim(a) and top < SMALL and any(np.any(message.arrays[name]) for message in messages):
            raise PrivacyError(
                f"round {t}: {name!r}: expected values of about 1, found {top:.3g} at most; secure summation rounds to "
                "multiples of 6e-8. Multiply the data by a public constant first."
            )
