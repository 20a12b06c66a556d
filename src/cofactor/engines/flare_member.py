"""One client of a federation, in its own process: it holds its data and codes, and answers orders one at a time.

Only three things leave it: what it is like (before a run), the declared messages of its method, and what may be said at
the end. Whatever goes wrong is written to the client's own log, and answered with a fixed text.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from cofactor.engines import secure
from cofactor.engines.checkpoint import Checkpoint, State
from cofactor.engines.contract import Work
from cofactor.engines.ends import bring_found
from cofactor.engines.flare_format import FormatError, order_of, refusal, reply_to
from cofactor.engines.flare_refusals import Refused
from cofactor.engines.host import Host
from cofactor.engines.team import Team
from cofactor.method import Method
from cofactor.privacy.errors import ForgedShareError, SignatureError
from cofactor.types import Array, Data, Local, Message, Shared

Ops = Mapping[str, Callable[[Any], Any]]
WORK: dict[str, Callable[..., Any]] = {
    work.__name__: work for work in (secure.new_keys, secure.token, secure.answer, secure.check_scale, bring_found)
}
"""All that a server may ask a client to do besides stepping; nothing else can be named."""
AFTER_STEP: dict[str, Callable[..., Any]] = {secure.bring.__name__: secure.bring}
LOG = logging.getLogger("cofactor.client")
LARGE = 10**7
"""Cells of data from which on a client takes all threads of BLAS; below, one: its sums are those of any engine."""


class Desk:
    """Where orders arrive: each is checked, carried out once, and answered; the last one again as it was."""

    def __init__(self, run: str, ops: Ops) -> None:
        self.run, self.ops = run, ops
        self.lock, self.busy = threading.Lock(), 0
        self.last, self.name, self.reply = 0, b"", b""

    def handle(self, data: Any) -> bytes:
        """Return the reply to a frame; never raises."""
        try:
            seq, op, value, name = order_of(data, self.run)
        except FormatError:
            return refusal(self.run, 0, "format")
        if op == "ping":
            return reply_to(self.run, 0, "busy" if self.busy else "idle")
        self.busy += 1
        try:
            with self.lock:
                return self._answered(seq, op, value, name)
        finally:
            self.busy -= 1

    def _answered(self, seq: int, op: str, value: Any, name: bytes) -> bytes:
        if seq == self.last and name == self.name:
            return self.reply
        if seq <= self.last or op not in self.ops:
            return refusal(self.run, seq, "order")
        try:
            reply = reply_to(self.run, seq, self.ops[op](value))
        except Refused as refused:
            LOG.warning("order %d (%s) refused: %s", seq, op, refused)
            reply = refusal(self.run, seq, refused.code)
            if refused.code == "order":
                return reply
        except Exception as error:
            LOG.exception("order %d (%s) failed", seq, op)
            full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            reply = refusal(self.run, seq, "disk" if full else "failed")
        self.last, self.name, self.reply = seq, name, reply
        return reply


def told(value: Any, **kinds: type | tuple[type, ...]) -> list[Any]:
    """Return the fields of an order in this order, if they are these and of these kinds."""
    if not isinstance(value, dict) or set(value) != set(kinds):
        raise Refused("order")
    for name, kind in kinds.items():
        if not isinstance(value[name], kind) or (isinstance(value[name], bool) and kind is not bool):
            raise Refused("order")
    return [value[name] for name in kinds]


def told_nothing(value: Any) -> None:
    """Refuse an order that says more than its name."""
    if value is not None:
        raise Refused("order")


class _Before(NamedTuple):
    """A client as it was before a step."""

    stage: int
    local: Local | None
    own: dict[int, tuple[Array, Array]]
    rounds: int


@dataclass
class Member:
    """The client at work: method, data and number are settled, and rounds follow.

    ``keep`` is a folder on the client's machine for its states, so that it can go on after it was stopped. ``limit`` is
    the most rounds, and ``close`` its work at the end. With ``masks`` no message leaves but under masks; ``sending`` is
    told of every message before it leaves.
    """

    method: Method
    data: Data
    number: int
    seed: int
    limit: int
    keep: Path | None = None
    masks: bool = False
    close: Work | None = None
    sending: Callable[[int, Message, Shared], Any] = lambda t, message, shared: None
    host: Host = field(init=False)
    rounds: int = 0
    """Rounds that count, up to the last step."""
    stepped: int = -1
    before: _Before | None = None

    def __post_init__(self) -> None:
        self.host = Host(self.method, [self.data], self.seed, first=self.number, stacks=False, masks=self.masks)
        self.threads = ThreadpoolController()
        shape = self.method.start(self.data.shape[1], np.random.default_rng(0)).factor.shape
        self.shape = tuple(shape)

    @property
    def ops(self) -> dict[str, Callable[[Any], Any]]:
        """The orders that it carries out."""
        return {
            "join": self.join,
            "step": self.step,
            "do": self.do,
            "held": self.held,
            "restore": self.restore,
            "finish": self.finish,
        }

    def join(self, value: Any) -> bool:
        """Join a stage that begins without this client; its first step may come later."""
        t, shared = told(value, t=int, shared=Shared)
        if t not in self.method.traits.stages:
            raise Refused("order")
        self._check(t, self.stepped, shared)
        self.host.step(shared, t, np.array([], int))
        return self._save(f"joined-{t}")

    def step(self, value: Any) -> dict[str, Any]:
        """Take the step of a round; ``counted`` is the last round in which the server used this client's answer.

        A step whose answer was not used is taken back first. With ``work`` the message stays here, for secure
        summation, and what the work returns is the answer.
        """
        t, counted, shared, work = told(value, t=int, counted=int, shared=Shared, work=(list, type(None)))
        self._check(t, counted, shared)
        if (work is None) == self.masks:
            raise Refused("secure")
        after = self._work(work, AFTER_STEP) if work is not None else None
        if counted < self.stepped:
            self._take_back(counted)
        self.before = _Before(self.host.stage, self.host.units[0].local, dict(self.host.own), self.rounds)
        try:
            with self._blas():
                [answer] = self.host.step(shared, t, np.array([self.number]))
            found = answer.message if after is None else after(self.host, [answer])
            self.sending(t, answer.message, shared)
        except BaseException:
            self._put_back(self.before)
            raise
        self.stepped, self.rounds = t, t + 1
        return {"answer": found, "kept": self._save(f"after-{self.rounds}")}

    def _check(self, t: int, counted: int, shared: Shared) -> None:
        """Refuse a round that cannot be the next, or a factor that is none."""
        possible = {self.stepped, *([] if self.before is None else [self.before.rounds - 1])}
        if not self.stepped < t < self.limit or counted not in possible:
            raise Refused("order")
        if shared.factor.shape != self.shape:
            raise Refused("order")
        for a in (shared.factor, *shared.extra.values()):
            if not (isinstance(a, np.ndarray | np.generic) and np.isfinite(a).all()):
                raise Refused("order")

    def _blas(self) -> Any:
        """Limit BLAS to one thread, unless there is work for more."""
        small = int(np.prod(self.data.shape)) < LARGE
        return self.threads.limit(limits=1 if small else None, user_api="blas")

    def _take_back(self, counted: int) -> None:
        assert self.before is not None  # counted is possible
        self._put_back(self.before)
        self.stepped = counted

    def _put_back(self, before: _Before) -> None:
        self.host.stage, self.host.units[0].local, self.rounds = before.stage, before.local, before.rounds
        self.host.own = before.own
        secure.forget(self.host)  # else it could still be asked for, though it may not leave

    def do(self, value: Any) -> Any:
        """Do some known work of secure summation."""
        if not self.masks:
            raise Refused("order")
        try:
            return self._work(value, WORK)(self.host)
        except (ForgedShareError, SignatureError) as error:  # by another client, or on the way: not its own fault
            LOG.warning("%s", error)
            raise Refused("forged") from error

    def _work(self, value: Any, known: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
        match value:
            case [str(name), *arguments] if name in known:
                return lambda host, *given: known[name](host, *given, *arguments)
        raise Refused("order")

    def _save(self, name: str) -> bool:
        """Write the state next to the one before the last step; a full disk is said, and ends nothing."""
        if self.keep is None:
            return True
        needed = {name, *([] if self.before is None else [f"after-{self.before.rounds}"])}
        try:
            self.keep.mkdir(parents=True, exist_ok=True)
            self._file(name).save(State(Shared(np.zeros((0, 0))), self.host.states(), []), Team())
            for other in self._kept("after") - needed:
                self._file(other).remove()
        except OSError:
            LOG.exception("the state %s could not be written", name)
            return False
        return True

    def _file(self, name: str) -> Checkpoint:
        assert self.keep is not None
        return Checkpoint(self.keep / f"{name}.npz")

    def _kept(self, kind: str) -> set[str]:
        return set() if self.keep is None else {path.stem for path in self.keep.glob(f"{kind}-*.npz")}

    def held(self, value: Any) -> list[str]:
        """Say which states are here: after so many rounds, or joined at the beginning of a stage."""
        told_nothing(value)
        return sorted(self._kept("after") | self._kept("joined"))

    def restore(self, value: Any) -> None:
        """Go back to a state: after the last step that counts, or joined and not stepped since; "" is the beginning."""
        name, counted, stage = told(value, name=str, counted=int, stage=int)
        if self.stepped >= 0 or not -1 <= counted < self.limit or not 0 <= stage < self.limit:
            raise Refused("order")
        if name not in ("", f"after-{counted + 1}", f"joined-{stage}"):
            raise Refused("order")
        if name:
            saved = self._file(name).load(Team()) if name in self.held(None) else None
            if saved is None:
                raise Refused("states")
            self.host.restore(saved.locals, max(counted, stage))
        self.stepped, self.rounds = counted, counted + 1

    def finish(self, value: Any) -> Any:
        """Find the codes for the final factor, keep them here, and say what may be said."""
        [factor] = told(value, factor=np.ndarray)
        if factor.ndim != 2 or factor.shape[1] != self.data.shape[1] or not np.isfinite(factor).all():
            raise Refused("order")
        if self.method.traits.allowance is not None:
            return self._finish_untold(factor)
        return self._finish(factor)

    def _finish(self, factor: Array) -> Any:
        work = [self.close] if self.close is not None else []
        with self._blas():
            done = self.host.finish(factor, work)
        return done.findings[0] if done.findings else None

    def _finish_untold(self, factor: Array) -> None:
        """Finish a private run, which says nothing: not even that it failed, which would tell of rows."""
        if factor.shape != self.shape:
            raise Refused("order")
        try:
            with np.errstate(all="ignore"):
                self._finish(factor)
        except Exception:
            LOG.exception("the codes for the final factor could not be found or written")
