"""Worst cases for private methods: records and clients that are fed through the real ``step`` of a method.

A method under audit keeps its plan (budget, shares, parts) and works on few features. Records are rows of the identity
matrix: each moves every array by the whole bound, along a direction of its own, so one release tells of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from cofactor.assurance import statistics
from cofactor.assurance.statistics import Verdict
from cofactor.privacy import gaussian
from cofactor.privacy.accountant import Unit
from cofactor.privacy.allowance import Allowance, Release
from cofactor.privacy.errors import AuditError
from cofactor.privacy.mechanisms import Gaussian
from cofactor.types import Array, Message, Shared

CONFIDENCE = 0.99999
"""Of each comparison of two worlds: a run has a dozen, and a right mechanism must pass them all on every day."""
STEPPED, RELEASED = 6000, 200_000
"""Releases of each world: of whole steps, and of single numbers, which cost less."""
TARGET = 3.0
"""So many deviations apart are the two worlds, by copies of the worst-case record: mu of G copies is G mu."""
COPIES = 256
LONG = 30.0
"""Records are so many times as long as their clip: clipping has to shorten them."""
FEATURES, CANARIES, GUESSES, ROWS = 16, 192, 144, 12
WIDE = 40
"""Features of a step that is taken many times: each is a record with a score of its own, so that few steps do."""
DELTA = 1e-6
"""A Gaussian is private at every delta; at this one, guesses about so many canaries bound epsilon well."""


@dataclass(frozen=True)
class Scaled(Allowance):
    """An allowance that charges what was promised and adds ``scale`` times the noise: 0 is the control of audits."""

    scale: float = 0.0

    def _mechanism(self, release: Release, parts: float) -> Gaussian:
        right = super()._mechanism(release, parts)
        return replace(right, multiplier=self.scale * right.multiplier)


def scaled(method: Any, scale: float) -> Any:
    """Return a private method with its noise scaled."""
    right = method.allowance
    return replace(method, allowance=Scaled(right.privacy, right.shares, right.parts, scale))


def kinds(method: Any) -> list[int]:
    """Return the first round of every kind: rounds that release the same arrays at the same price are one kind."""
    seen: dict[tuple[Any, ...], int] = {}
    for t in range(len(method.allowance.shares)):
        seen.setdefault(tuple(method.allowance.costs(t).items()), t)
    return list(seen.values())


def claim(method: Any, t: int, name: str) -> float:
    """Return the mu = Delta / sigma that one client's message is accounted with."""
    return float(np.sqrt(method.allowance.parts.least)) / method.allowance.costs(t)[name].multiplier


Outcome = Verdict | AuditError
"""A verdict, or why there is none."""


class Bench(NamedTuple):
    """A round of a method that sums over records, with the directions of its records in every array."""

    method: Any
    shared: Shared
    t: int
    records: Array
    directions: dict[str, Any]

    def scores(self, rows: Array, rng: np.random.Generator) -> dict[str, Array]:
        """Let a client with these rows step; return how far its message lies in the direction of every record."""
        message = step_of(self.method, rows, self.shared, self.t, rng)
        return {name: D @ np.ravel(message.arrays[name]) for name, D in self.directions.items()}


def benches(method: Any, t: int, features: int, *, broken: Any = None) -> tuple[Bench, Bench]:
    """Set up a round with one record per feature: the method (or a broken one in its place), and it without noise."""
    (silent, start), rng = scaled(method, 0.0).bench(features), np.random.default_rng(0)
    shared = silent.start(features, rng, start)
    records = LONG * (method.allowance.privacy.clip or 1.0) * np.eye(features)
    with threadpool_limits(1, "blas"):  # many tiny products: threads would only wait for each other
        alone = [step_of(silent, row[None], shared, t, rng) for row in records]
    directions = {
        name: sparse.vstack([_unit(m.arrays[name]) for m in alone], format="csr")
        for name, a in alone[0].arrays.items()
        if np.size(a) >= features
    }
    tested, _ = (broken or method).bench(features)
    return Bench(tested, shared, t, records, directions), Bench(silent, shared, t, records, directions)


def _unit(a: Array) -> Any:
    flat = np.ravel(a)
    return sparse.csr_matrix(flat / np.linalg.norm(flat))


def step_of(method: Any, rows: Array, shared: Shared, t: int, rng: np.random.Generator) -> Message:
    """Let a client with these rows join and step; return its message."""
    return method.step(rows, shared, method.join(rows, shared, t, rng), t, rng)[1]


def _told(run: Callable[[], Verdict], copies: int = 1) -> Outcome:
    """Return the verdict for one record, or that there can be none: even no noise would not refute so large a claim."""
    try:
        found = run()
        return replace(found, lower=found.lower / copies, claim=found.claim / copies, control=found.control / copies)
    except AuditError as blind:
        return blind


def two_world_step(method: Any, t: int, *, broken: Any = None) -> Iterator[tuple[str, Outcome]]:
    """Step with and without copies of worst-case records, many times; yield the verdict of every array.

    ``broken`` is what is run in place of the method, whose claim it is held against.
    """
    test, silent = benches(method, t, WIDE, broken=broken)
    for name in test.directions:
        mu = claim(method, t, name)
        copies = min(max(1, math.ceil(TARGET / mu)), COPIES)
        worlds = _world(test, name, copies), _world(silent, name, copies, calls=1)
        setting: dict[str, Any] = {"claim": copies * mu, "releases": STEPPED, "confidence": CONFIDENCE}
        yield name, _told(partial(statistics.two_world, *worlds, **setting), copies)


def _world(test: Bench, name: str, copies: int, calls: int | None = None) -> statistics.World:
    """Every call scores all records; without noise one call is as good as many."""
    present = np.repeat(test.records, copies, axis=0)

    def world(there: bool, n: int) -> Array:
        rng, rows = np.random.default_rng(int(there)), present if there else np.zeros((1, WIDE))
        with threadpool_limits(1, "blas"):
            found = [test.scores(rows, rng)[name] for _ in range(calls or -(-n // WIDE))]
        return np.resize(np.concatenate(found), n)

    return world


def two_world_release(method: Any, t: int, *, broken: Any = None) -> Iterator[tuple[str, Outcome]]:
    """Release one number with and without copies of a worst case, many times: the noise of every array of a round."""
    for name in method.allowance.shares[t]:
        mu = claim(method, t, name)
        shift = max(1, math.ceil(TARGET / mu))
        worlds = [_numbers(m.allowance, t, name, shift) for m in (broken or method, scaled(method, 0.0))]
        setting: dict[str, Any] = {"claim": shift * mu, "releases": RELEASED, "confidence": CONFIDENCE}
        yield name, _told(partial(statistics.two_world, *worlds, **setting), shift)


def _numbers(plan: Allowance, t: int, name: str, shift: int) -> statistics.World:
    # many releases of one number travel as one array, to which the bound of a client's message does not apply
    plan = replace(plan, privacy=replace(plan.privacy, unit=Unit.RECORD))

    def world(there: bool, n: int) -> Array:
        rng = np.random.default_rng(int(there))
        return plan.release(t, {name: np.full(n, float(there) * shift)}, {name: 1.0}, rng).arrays[name]

    return world


def one_run(method: Any, t: int, *, seeds: Sequence[int] = (0,), broken: Any = None) -> Iterator[tuple[str, Outcome]]:
    """Audit a round by canaries that are in or out by fair coins: rows, or clients where they are the unit."""
    make = _client_canaries if method.allowance.privacy.unit is Unit.CLIENT else _record_canaries
    runs = make(method, t, broken)
    for name, (release, control) in runs.items():
        epsilon = gaussian.epsilon(claim(method, t, name), DELTA)
        for seed in seeds:
            rng = np.random.default_rng([seed, t])
            setting: dict[str, Any] = {"canaries": CANARIES, "guesses": GUESSES, "delta": DELTA, "rng": rng}
            yield name, _told(partial(statistics.one_run, release, control, claim=epsilon, **setting))


Pair = tuple[statistics.Canaries, statistics.Canaries]


def _record_canaries(method: Any, t: int, broken: Any) -> dict[str, Pair]:
    pair, rng = benches(method, t, CANARIES, broken=broken), np.random.default_rng(t)

    def run(test: Bench, name: str) -> statistics.Canaries:
        return lambda included: test.scores(test.records[included], rng)[name]

    return {name: (run(pair[0], name), run(pair[1], name)) for name in pair[0].directions}


def _client_canaries(method: Any, t: int, broken: Any) -> dict[str, Pair]:
    silent, shared, data = scaled(method, 0.0), *small_clients(method, CANARIES)
    alone = [step_of(silent, X, shared, t, np.random.default_rng(j)) for j, X in enumerate(data)]

    def run(tested: Any, name: str) -> statistics.Canaries:
        def score(j: int, there: bool) -> float:
            rng = np.random.default_rng(j)
            step = step_of(tested, data[j], shared, t, rng) if there else absent(tested, alone[j], t, rng)
            return _along(step.arrays[name], alone[j].arrays[name])

        return lambda included: np.array([score(j, there) for j, there in enumerate(included)])

    return {name: (run(broken or method, name), run(silent, name)) for name in alone[0].arrays}


def absent(method: Any, like: Message, t: int, rng: np.random.Generator) -> Message:
    """Return what the sum gets where a client is not there: noise alone."""
    zeros = {name: np.zeros(np.shape(a)) for name, a in like.arrays.items()}
    return method.allowance.release(t, zeros, {name: release.clip for name, release in like.cost.items()}, rng)


def _along(a: Array, direction: Array) -> float:
    length = float(np.linalg.norm(direction))
    return float(np.vdot(a, direction)) / length if length > 0 else 0.0


def small_clients(method: Any, count: int, seed: int = 0) -> tuple[Shared, list[Array]]:
    """Return a public start and the data of so many small clients, of bits where the method wants them."""
    rng = np.random.default_rng(seed)
    m = max(FEATURES, method.rank)
    shared = method.start(m, rng)
    bits = method.traits.kind == "boolean"
    data = [rng.random((ROWS, m)) < 0.4 if bits else 30 * rng.random((ROWS, m)) ** 4 for _ in range(count)]
    return shared, [X.astype(np.uint8) if bits else X for X in data]
