"""The clients of a federation as its server sees them: orders go out, replies are checked, silence is noticed.

Nothing here knows what carries the bytes: that is a :class:`Wire`. An order may be carried twice (after a network was
cut, say), and a client carries it out once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cofactor.engines import flare_replies
from cofactor.engines.flare_format import FormatError, pack, same, unpack
from cofactor.engines.flare_refusals import PAUSED, REFUSALS, LeftOut, Refused, Short

LOOK, AGAIN, PING, LATE = 0.5, 1.0, 2.0, 4.0
"""Seconds: how often somebody looks around, sends an order again that did not arrive, and asks who is silent; and after
which it is said who is not there at the start."""

GIVEN_UP, SILENT, ABSENT = "was silent for", "does not answer", "is not there yet; the run waits for it, at most"


class Wire(Protocol):
    """What carries bytes to clients and back."""

    def submit(self, client: str, frame: bytes, timeout: float) -> int:
        """Send a frame; return a ticket for its reply."""
        ...

    def wait(self, timeout: float) -> list[tuple[int, bytes | None]]:
        """Return replies that have arrived by ticket, after at most so many seconds; None: it did not get through."""
        ...


@dataclass(frozen=True)
class Patience:
    """Seconds: how long a client may be silent before it is given up, and how long an order may take in all.

    ``least`` is the number of clients that must answer in a round; None is all of them. ``approval`` is how long a
    person may take to approve a run, and ``start`` how long clients may take to be there at all.
    """

    silence: float = 60.0
    deadline: float = math.inf
    least: int | None = None
    approval: float = 3600.0
    start: float = 60.0


@dataclass
class _Pending:
    """An order that is under way."""

    seq: int
    op: str
    value: Any
    frame: bytes
    begun: float
    ticket: int | None = None
    again: float = 0.0


@dataclass
class Clients:
    """All clients of a run, in their order; ``tell`` hears of every fault and of what was done.

    ``stop`` says whether the run is to pause: then nobody waits for clients that are silent.
    """

    wire: Wire
    names: Sequence[str]
    run: str
    patience: Patience = field(default_factory=Patience)
    tell: Callable[[str, str], Any] = lambda client, what: None
    stop: Callable[[], bool] = lambda: False
    largest: int = 1 << 31
    absent: set[int] = field(default_factory=set)
    wrong: set[int] = field(default_factory=set)
    received: int = 0
    _pending: dict[int, _Pending] = field(default_factory=dict)
    _seq: dict[int, int] = field(default_factory=dict)
    _tickets: dict[int, tuple[int, int]] = field(default_factory=dict)
    _done: dict[int, int] = field(default_factory=dict)
    _silent: dict[int, float] = field(default_factory=dict)
    _pinged: dict[int, float] = field(default_factory=dict)
    _late: set[int] = field(default_factory=set)
    _last: tuple[int, str, Any, bytes] | None = None

    def ask(self, op: str, orders: Mapping[int, Any]) -> dict[int, Any]:
        """Give each of these clients an order; return the answers of those that answer, in client order.

        A client that refuses ends it (:class:`Refused`); one that is given up is missing, and is looked for in vain
        until it answers a ping again.
        """
        for j, value in orders.items():
            self.post(op, j, value)
        found = dict[int, Any]()
        while any(j in self._pending for j in orders):
            found |= self.collect()
        return dict(sorted(found.items()))

    def meet(self) -> None:
        """Wait until every client is there; soon say for whom."""
        begun, missing, said = time.monotonic(), dict(enumerate(self.names)), False
        frame = pack({"run": self.run, "seq": 0, "op": "ping", "v": None})
        while missing:
            asked = {self.wire.submit(name, frame, PING): j for j, name in missing.items()}
            while asked:
                for ticket, data in self.wire.wait(PING):
                    j = asked.pop(ticket, None)
                    if j is not None and data is not None:
                        missing.pop(j, None)
            waited = time.monotonic() - begun
            if missing and not said and waited > min(LATE, self.patience.start):
                said = True
                for name in missing.values():
                    self.tell(name, f"{ABSENT} {self.patience.start:g} s")
            if missing and waited > self.patience.start:
                if len(self.names) - len(missing) >= (self.patience.least or len(self.names)):
                    raise LeftOut(list(missing.values()))
                raise Short(f"expected all clients at the start, found none of {', '.join(missing.values())}.")
            time.sleep(AGAIN / 4 if missing else 0)

    def post(self, op: str, j: int, value: Any) -> None:
        """Send one client an order; an absent one is only asked whether it is there again."""
        if j in self.absent:
            self._ping(j)
            return
        self._seq[j] = self._seq.get(j, 0) + 1
        frame = self._frame(self._seq[j], op, value)
        self._pending[j] = _Pending(self._seq[j], op, value, frame, time.monotonic())
        self._submit(j, self._pending[j])

    def _frame(self, seq: int, op: str, value: Any) -> bytes:
        """Return the frame of an order; most clients are sent the same, which is written once."""
        last = self._last
        if last is None or last[:2] != (seq, op) or not same(last[2], value):
            self._last = seq, op, value, pack({"run": self.run, "seq": seq, "op": op, "v": value})
        assert self._last is not None
        return self._last[3]

    def waits_for(self, j: int) -> bool:
        """Whether a client has an order that it has not answered."""
        return j in self._pending

    def collect(self, timeout: float = LOOK) -> dict[int, Any]:
        """Return the answers that have arrived, after a while none; look after those that are awaited."""
        found = dict[int, Any]()
        for ticket, data in self.wire.wait(timeout):
            self._arrived(ticket, data, found)
        self._look_after()
        return found

    def everyone(self, op: str, value: Any = None) -> dict[int, Any]:
        """Give all clients the same order."""
        return self.ask(op, dict.fromkeys(range(len(self.names)), value))

    def gone(self) -> list[str]:
        """Return the clients that were given up."""
        return [self.names[j] for j in sorted(self.absent)]

    def drop(self, client: int, code: str) -> None:
        """Say that a client's answer cannot be used."""
        self.wrong.add(client)
        self.tell(self.names[client], REFUSALS[code])

    def _submit(self, j: int, order: _Pending) -> None:
        order.ticket = self.wire.submit(self.names[j], order.frame, math.inf)
        self._tickets[order.ticket] = (j, order.seq)

    def _ping(self, j: int) -> None:
        now = time.monotonic()
        if now - self._pinged.get(j, -math.inf) >= PING:
            self._pinged[j] = now
            frame = pack({"run": self.run, "seq": 0, "op": "ping", "v": None})
            self._tickets[self.wire.submit(self.names[j], frame, 2 * PING)] = (j, 0)

    def _arrived(self, ticket: int, data: bytes | None, found: dict[int, Any]) -> None:
        """Take a reply: of a ping, of an order, or of one that nobody waits for any more."""
        j, seq = self._tickets.pop(ticket, (-1, -1))
        if j < 0:
            return
        order = self._pending.get(j)
        if data is None:
            self._hush(j)
            if order is not None and order.ticket == ticket:
                order.ticket, order.again = None, time.monotonic() + AGAIN
            return
        self._heard(j)
        if seq == 0:
            if order is not None and self._idle(data):
                order.ticket, order.again = None, 0.0  # the order or its reply was lost
            return
        if order is None or order.seq != seq:
            if seq > self._done.get(j, 0):  # not an answer that came twice
                self._late.add(j)
                self.tell(self.names[j], "answered too late; the answer was not used")
            return
        del self._pending[j]
        self._done[j] = seq
        self.received += len(data)
        try:
            reply = self._read(j, seq, data)
            flare_replies.check(order.op, j, order.value, reply)
            found[j] = reply
            if j in self._late:
                self._late.discard(j)
                self.tell(self.names[j], "answers again")
        except FormatError:
            self.drop(j, "reply")

    def _idle(self, data: bytes) -> bool:
        """Whether a client that answers a ping is doing nothing."""
        try:
            found = unpack(data, largest=1 << 12)
        except FormatError:
            return False
        return isinstance(found, dict) and isinstance(found.get("v"), str) and found["v"] == "idle"

    def _read(self, j: int, seq: int, data: bytes) -> Any:
        """Return what a client answers; raise what it refuses."""
        match unpack(data, largest=self.largest):
            case {"run": str(run), "seq": int(number), **rest} if (run, number) == (self.run, seq) and len(rest) == 1:
                if "v" in rest:
                    return rest["v"]
                code = rest.get("no")
                if isinstance(code, str) and code in REFUSALS:
                    raise Refused(code, self.names[j])
        raise FormatError("expected the reply to this order.")

    def _hush(self, j: int) -> None:
        if j not in self._silent:
            self._silent[j] = time.monotonic()
            if j not in self.absent:
                self.tell(self.names[j], SILENT)

    def _heard(self, j: int) -> None:
        if j in self._silent or j in self.absent:
            self._silent.pop(j, None)
            self.absent.discard(j)
            self.tell(self.names[j], "answers again")

    def _look_after(self) -> None:
        """Send again what did not arrive, ping those that are silent, and give up those that are silent for long."""
        if not self._silent.keys().isdisjoint(self._pending) and self.stop():
            raise Short(PAUSED)
        now = time.monotonic()
        for j, order in list(self._pending.items()):
            if order.ticket is None and now >= order.again:
                self._submit(j, order)
            if now - order.begun > PING:
                self._ping(j)
            if now - self._silent.get(j, now) > self.patience.silence:
                del self._pending[j]
                self.absent.add(j)
                self.tell(self.names[j], f"{GIVEN_UP} {self.patience.silence:g} s, and is given up")
            elif now - order.begun > self.patience.deadline:
                del self._pending[j]
                self._late.add(j)
                self.tell(self.names[j], f"took longer than {self.patience.deadline:g} s; the others go on")
