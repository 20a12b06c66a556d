"""Two worlds on all messages of a run at once, by their likelihood ratio: the best attack there is on known noise.

An attacker who knows everything but whether one unit is there computes, in every round and from what was released so
far, what a client would send without noise in either world, ``a_0`` and ``a_1``, and adds up
``<x - (a_0 + a_1) / 2, a_1 - a_0> / sigma^2`` over all arrays of all rounds (Neyman and Pearson). With secure sums the
attacker is a participant, together with the server: of the sum it has subtracted what the other curious ones sent. As
few clients may have answered as may, or all of them, and then the noise that nobody needed is known and gone, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cofactor.assurance import statistics
from cofactor.assurance.worst_case import absent, scaled, step_of
from cofactor.method import total
from cofactor.privacy import gaussian
from cofactor.types import Data, Message, Shared


class Joint(NamedTuple):
    """What an attack on all messages found of mu at least, what it could find at most, and what was claimed."""

    lower: float
    possible: float
    claim: float

    @property
    def passed(self) -> bool:
        """Whether the evidence is compatible with the claim."""
        return self.lower <= self.claim and self.possible <= self.claim * (1 + 1e-6)


def claimed_mu(method: Any) -> float:
    """Return the mu that all releases of a run are accounted with together."""
    allowance = method.allowance
    return gaussian.compose(c.multiplier for t in range(len(allowance.shares)) for c in allowance.costs(t).values())


class View(NamedTuple):
    """What is attacked: ``run`` in the place of ``method``, whose claim and noise it is held against."""

    run: Any
    method: Any
    everybody: bool
    others: int | None

    @property
    def honest(self) -> int:
        """How many clients' noise is in what the attacker sees."""
        least, full = self.method.allowance.parts
        return self.others or (full if self.everybody else least)


def joint(
    method: Any,
    without: Data | None,
    present: Data,
    *,
    releases: int = 500,
    confidence: float = 0.99,
    run: Any = None,
    everybody: bool = False,
    others: int | None = None,
) -> Joint:
    """Run all rounds many times with a unit and without it; return the lower bound on mu.

    ``without`` is None where a client has nothing. ``run`` is what is run in place of the method, whose claim and noise
    it is held against: an audit that never fails is none. ``everybody``: no client dropped out of the secure sums.
    ``others``: the attacker is one participant without the server, and sees the sum of so many honest clients at most.
    """
    view, data = View(run or method, method, everybody, others), (without, present)
    shared = method.start(present.shape[1], np.random.default_rng(0))
    begin = shared, _silent(method, data, shared, 0)
    found = [[_score(view, data, begin, (int(there), seed)) for seed in range(releases)] for there in (True, False)]
    scores = [np.array([score for score, _ in world]) for world in found]
    possible = max(distance for world in found for _, distance in world)
    lower = statistics.mu_lower(scores[0], scores[1], confidence)
    return Joint(lower, float(np.sqrt(possible)), claimed_mu(method))


Silent = tuple[Message, dict[str, Any]]
"""What a client sends without noise where the unit is there, and the arrays where it is not."""


def _silent(method: Any, data: tuple[Data | None, Data], shared: Shared, t: int) -> Silent:
    silent = scaled(method, 0.0)
    with_it = step_of(silent, data[1], shared, t, np.random.default_rng(t))
    if data[0] is None:
        return with_it, {}
    return with_it, step_of(silent, data[0], shared, t, np.random.default_rng(t)).arrays


def _score(
    view: View, data: tuple[Data | None, Data], begin: tuple[Shared, Silent], seed: tuple[int, int]
) -> tuple[float, float]:
    """Return the log likelihood ratio of one run, and the sum of ``|a_1 - a_0|^2 / sigma^2``, which is its mu^2.

    ``begin`` is the start, the same in all runs, and what the first round sends there; ``seed`` names the world first.
    """
    method, honest, allowance = view.method, view.honest, view.method.allowance
    shared, (with_it, old), score, distance = *begin, 0.0, 0.0
    rng = np.random.default_rng(seed)
    for t in range(len(allowance.shares)):
        if t > 0:
            with_it, old = _silent(method, data, shared, t)
        seen = _seen(view, data[seed[0]], with_it, at=(shared, t), rng=rng)
        for name, x in seen.arrays.items():
            a, b = old.get(name, 0.0), with_it.arrays[name]
            sigma = allowance.sigma(t, name, with_it.cost[name].clip, honest, honest if view.everybody else 0)
            score += float(np.vdot(x - (a + b) / 2, b - a + np.zeros(np.shape(x)))) / sigma**2
            distance += float(np.sum(np.square(b - a))) / sigma**2
        if t + 1 < len(allowance.shares):  # what comes after the last release is nobody's attack
            shared = method.aggregate(shared, [seen._replace(weight=float(honest))], t)
    return score, distance


def _seen(view: View, X: Data | None, like: Message, *, at: tuple[Shared, int], rng: np.random.Generator) -> Message:
    """Return the sum that an attacker sees: one client's message, and the noise of the other honest ones."""
    (shared, t), run = at, view.run
    known = rng if run.allowance.privacy.insecure_seed is not None else np.random.default_rng(t)  # seeds of solvers are
    own = absent(run, like, t, rng) if X is None else step_of(run, X, shared, t, known)
    messages = [own, *(absent(run, like, t, rng) for _ in range(view.honest - 1))]
    seeds = [message.spare for message in messages if message.spare]
    return run.allowance.spared(total(messages), seeds) if view.everybody and seeds else total(messages)
