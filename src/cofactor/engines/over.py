"""When a run is over, and why: by what its method can be judged by, once all clients are in it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cofactor.engines.history import Round
from cofactor.kinds.passports import LAST_ROUNDS
from cofactor.method import Method
from cofactor.plan import Plan
from cofactor.types import Array, Shared

SETTLED = 0.02
"""A component that has come this far (of its norm) in the last rounds is still on its way, however flat the loss."""
NOISE = 2.0
"""A factor that has come no further in ``WINDOW`` rounds than so many of its steps goes to and fro: around a place
where it stays it would come as far as one of them, in one direction as far as all, at random as far as the root."""
WINDOW = 20
DIRECTIONS = 32
"""Places of a factor are kept in so many random directions: their distances are right to about an eighth."""
LONGEST = 3
"""Where clients are drawn, patience may grow to so many times itself until all were heard: one may be gone for good."""
RETRACTED = 10
"""So many rounds in a row that were taken back say that nothing can be gained; fewer only that steps were too long."""
MANY = 200
"""A tolerance is for a few rounds, means of losses that are estimates are of many: at 1e-4, 1 % of the error."""
TRAIL = "trail"
"""Where a saved state keeps them, in the memory of the server."""


class Over:
    """Reads the history of the last stage. A method with a plan of its own (one upload, a schedule) runs all of it,
    but for iterations, which are at most so many.

    With absent clients patience is for as many rounds as it takes to hear each of them so often, also one that is drawn
    rarely, and how far the factor moves is counted for all of them; where it is not renewed in every round, patience is
    for as many as it takes to see it move. Where the server keeps running sums, its loss grows with every client that
    joins, so that losses compare from the round on in which the last one did. ``limit`` is the number of rounds after
    which it ends anyway.
    """

    def __init__(self, method: Method, plan: Plan, clients: int, limit: int) -> None:
        self.own, self.traits, self.limit = method.rounds, method.traits, limit
        self.judges = self.own is None or (self.traits.iterates and plan.rule.tol > 0)
        share = plan.share
        every = clients if plan.stream else self.traits.every / share
        self.tol, self.patience = plan.rule.tol, math.ceil(plan.rule.patience * every)
        self.share, self.stream = share, plan.stream is not None
        self.whole = share == 1 and plan.stream is None
        self.silent, self.never, self.undrawn = (np.ones(clients, bool) for _ in range(3))
        self.last = np.full((plan.rule.patience, clients), -1)
        self.judged = "factor" if plan.stream else self.traits.judged  # single answers have losses of single clients
        self.first = math.inf if self.traits.running and not plan.stream else 0
        self.trail = Trail(math.ceil(WINDOW * every))
        self.before: Array | None = None
        self.recent: deque[Array] = deque(maxlen=LAST_ROUNDS)
        self.precision = 0.0
        self.lines: list[Round] = []

    def begin(self, shared: Shared, factor: Array | None) -> Shared:
        """Remember where the run begins, or goes on; return the state without what was kept for this."""
        kept = {name: value for name, value in shared.memory.items() if name != TRAIL}
        if TRAIL in shared.memory:
            self.trail.places.extend(shared.memory[TRAIL])
        self.before = factor
        return shared._replace(memory=kept)

    def kept(self, shared: Shared) -> Shared:
        """Return the state as it is saved: with the way that the factor came."""
        if not self.trail.places:
            return shared
        return shared._replace(memory={**shared.memory, TRAIL: np.stack(list(self.trail.places))})

    def heard(self, t: int, clients: Array, drawn: Array | None = None) -> None:
        """Note who took part in round t, of those that were ``drawn``; in a new stage everybody is new."""
        self.undrawn[clients if drawn is None else drawn] = False
        if t in self.traits.stages:
            self.silent[:] = True
        self.silent[clients] = self.never[clients] = False
        if self.share < 1:
            self.last[:, clients] = np.vstack([self.last[1:, clients], np.full((1, len(clients)), t)])
        if self.traits.running and not self.silent.any():
            self.first = min(self.first, t)

    def looks(self, t: int) -> bool:
        """Whether somebody looks at the factor after round t: of iterations where it is renewed."""
        return self.judges and (self.own is None or t % self.traits.every == 0)

    def seen(self, line: Round, factor: Array | None) -> Round:
        """Return the line of a round with how far the factor has come in it."""
        if factor is None:
            return line
        if factor.dtype.kind == "f":
            self.precision = float(np.finfo(factor.dtype).eps)
        origin = factor.mean(axis=0) if self.traits.kind == "clusters" else None  # where centres lie says nothing
        place = factor if origin is None else factor - origin
        net = self.trail(place)[1] if self.judged == "factor" and self.tol > 0 else math.nan
        before, self.before = self.before, factor
        self.recent.append(factor)
        return line._replace(moved=math.nan if before is None else moved(before, factor, origin), net=net)

    def look(self, line: Round, shared: Shared) -> bool:
        """Callback of a stream: say whether it is over, once for every answer of all clients."""
        self.lines.append(line)
        return self.tol > 0 and len(self.lines) % len(self.never) == 0 and bool(self.why(self.lines))

    def why(self, history: Sequence[Round]) -> str:
        """Return why it is over after the last line, one of ``ENDED``; "" where it goes on."""
        used = len(history) >= self.limit
        if self.own is not None:
            return self._of_plan(history, used)
        last = len(self.traits.stages) - 1
        lines = [line for line in history if line.stage == last and line.round >= self.first]
        if self.whole and lines:  # losses of other clients do not compare: one has come late, or was silent
            lines = [line for line in lines if line.participants == lines[-1].participants]
        lines = tried(lines) if self.traits.retracts else lines
        shown = self.tol == 0 or self.tol >= self.precision
        tol = self._tol() if shown else self.precision
        if found := still(lines, tol, self._patience(len(history)), self.judged):
            return found if shown or found == "noise" else "precision"
        if not used:
            return ""
        return "asked" if self.tol == 0 else "few" if len(lines) <= self.patience else "rounds"

    def _of_plan(self, history: Sequence[Round], used: bool) -> str:
        """Return why a method with a plan of its own is over: iterations may end where the factor is renewed."""
        if self.own is not None and self.limit < self.own:
            return "rounds" if used else ""
        if not (self.traits.iterates and self.tol > 0):
            return "plan" if used else ""
        lines = [line for line in history if not math.isnan(line.loss)]
        if not used and (not lines or lines[-1].round % self.traits.every):
            return ""
        tol = max(self.tol, self.precision)
        if self.judged == "estimate":
            found = "loss" if settled([line.loss for line in lines], tol) else ""
        else:
            found = still(lines, tol, self.patience, self.judged)
        if found:
            return found if tol == self.tol else "precision"
        return "" if not used else "few" if len(lines) <= self.patience else "iterations"

    def _tol(self) -> float:
        """Return the tolerance of a round: where some answer, the factor moves by so much less than with all."""
        return self.tol * (self.share if self.judged == "factor" and not self.stream else 1.0)

    def _patience(self, rounds: int) -> int:
        """Return how many of the last rounds are looked at: those in which each client was heard as often as asked."""
        if self.share == 1 or self.stream:
            return self.patience
        return min(max(self.patience, rounds - int(self.last.min())), LONGEST * self.patience)


def tried(history: list[Round]) -> list[Round]:
    """Return the rounds of which something was kept, or all of them where many in a row came to nothing."""
    kept = [line for line in history if line.moved != 0]
    return kept if kept and history[-1].round - kept[-1].round < RETRACTED else history


def still(history: Sequence[Round], tol: float, patience: int, judged: str = "loss") -> str:
    """Say what stands still after the last line (:class:`~cofactor.plan.Stop`): "loss", "factor", "noise" or ""."""
    if tol <= 0 or len(history) <= patience:
        return ""
    last = history[-patience:]
    steps = [line.moved for line in last if not math.isnan(line.moved)]
    losses = [line.loss for line in history]
    before, now = min(losses[:-patience]), min(losses)
    fallen = before - now > tol * abs(before)
    if judged == "factor":
        # a small step of the factor may be a large one of a small error, and then losses of any kind say so
        if steps and max(steps) <= tol and not fallen:
            return "factor"
        return "noise" if all(line.net <= NOISE for line in last) else ""
    if steps and sum(steps) <= tol:
        return "factor"
    return "loss" if before - now <= tol * abs(before) and sum(steps) <= SETTLED else ""


def settled(losses: Sequence[float], tol: float) -> bool:
    """Say whether estimates of a loss, drawn anew in every round, have settled.

    The mean of the last third of them is less than ``MANY`` times ``tol`` below that of the third before, sure by twice
    its standard error. Where a loss falls like one over the rounds, or one over their root, twice as many would lower
    it by less than that.

    >>> settled([0.98**t for t in range(90)], 1e-4), settled([1 + 0.01 * (-1) ** t for t in range(90)], 1e-4)
    (False, True)
    """
    span = len(losses) // 3
    if tol <= 0 or span < WINDOW:
        return False
    before, last = np.array(losses[-2 * span : -span]), np.array(losses[-span:])
    error = math.sqrt((before.var(ddof=1) + last.var(ddof=1)) / span)
    return bool(before.mean() - last.mean() + 2 * error <= MANY * tol * abs(last.mean()))


class Trail:
    """Where the factor was in the last rounds: how far it has come in ``window`` of them, against its steps.

    A step is what it moves in ``lag`` rounds: in a stream, where single answers pull to single clients, one of all.
    """

    def __init__(self, window: int, lag: int = 1) -> None:
        self.window, self.lag = window, lag
        self.places: deque[Array] = deque(maxlen=window + lag + 1)
        self.directions: Array | None = None

    def __call__(self, factor: Array) -> tuple[float, float]:
        """Note the factor; return its last step over the size of the largest component, and ``Round.net``."""
        place = self._place(factor)
        if self.places and self.places[-1].shape != place.shape:
            self.places.clear()
        self.places.append(place)
        if len(self.places) <= self.lag:
            return math.nan, math.nan
        size = max(float(np.linalg.norm(place, axis=1).max()), np.finfo(np.float64).tiny)
        step = float(np.linalg.norm(place - self.places[-1 - self.lag], axis=1).max() / size)
        return step, self._net(size) if len(self.places) > self.window + self.lag else math.nan

    def _net(self, size: float) -> float:
        """How far every component has come over the root mean square of its steps, of those that move at all."""
        way = np.stack(list(self.places))
        steps = np.linalg.norm(way[self.lag :] - way[: -self.lag], axis=2)
        usual = np.sqrt(np.mean(steps**2, axis=0))
        come = np.linalg.norm(way[-1] - way[-1 - self.window], axis=1)
        moving = usual > 1e-6 * size
        return float((come[moving] / usual[moving]).max()) if moving.any() else 0.0

    def _place(self, factor: Array) -> Array:
        """Return the factor (k x m) in a few random directions (k x 32), the same in every run."""
        m = factor.shape[1]
        if m <= DIRECTIONS:
            return factor.astype(np.float64)
        if self.directions is None or len(self.directions) != m:
            signs = np.random.default_rng(0).integers(2, size=(m, DIRECTIONS), dtype=np.int8)
            self.directions = ((2 * signs - 1) / math.sqrt(DIRECTIONS)).astype(np.float32)
        return factor.astype(np.float64) @ self.directions


def moved(before: Array, after: Array, origin: Array | None = None) -> float:
    """Return how far the row that moved most has come, over the norm of the longest; NaN where they do not compare.

    Norms are from ``origin``; where all rows are there, rounding is no movement.
    """
    if before.shape != after.shape or not after.size:
        return math.nan
    steps = np.linalg.norm(after.astype(np.float64) - before, axis=1)
    size = np.linalg.norm(after, axis=1).max()
    if origin is not None:
        size = max(np.linalg.norm(after - origin, axis=1).max(), size * math.sqrt(np.finfo(after.dtype).eps))
    return float(steps.max() / max(size, np.finfo(np.float64).tiny))


def in_order(factor: Array, memory: Mapping[str, Any]) -> tuple[Array, dict[str, Any]]:
    """Return the final factor, components by their share where the server knows it, and what it knows of each.

    Codes are found for the final factor, so that they need no order of their own.
    """
    known = {name: memory[name] for name in ("share", "stability", "silhouette", "sizes") if name in memory}
    order = np.argsort(-known["share"], kind="stable") if "share" in known else np.arange(len(factor))
    others = {name: memory[name] for name in ("clustergram",) if name in memory}
    if "short" in memory:
        others["short"] = int(memory["short"])
    if "observed" in memory:
        others["unobserved"] = tuple(np.flatnonzero(~memory["observed"]).tolist())
    return factor[order], {name: a[order] for name, a in known.items()} | others


ALONE = 0.05
"""A component is made of one row where all others together have less than this share of the squares of its codes."""
SURE = 0.97
"""A component whose partner in a restart that is as good has a smaller cosine than this may come out otherwise."""
