"""Component passports: where a component is found, how stable it is, what it is made of, how much it explains."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from cofactor import kinds
from cofactor.kinds.numbers import NON_NEGATIVE
from cofactor.local import arrays
from cofactor.local.brief import padded
from cofactor.local.stacked import Summary
from cofactor.local.stats import shares
from cofactor.method import SERVER, rng
from cofactor.methods.alone import Alone
from cofactor.methods.summed import Summed
from cofactor.select.matching import cosines, distances, fitted, own_match, unit
from cofactor.types import Array, CofactorError, Data, Message

FOUND = 0.8
LAST_ROUNDS = 5
RESTARTS = 4


@dataclass(frozen=True)
class Passport:
    """One component of a shared factor.

    ``clients`` of the ``n_clients`` find it: their own best match has a cosine of at least 0.8 (``cosines``, one per
    client, 0 without a match). ``stability`` is the mean matched cosine with fits of the clients' summaries from other
    seeds. ``drift`` is the largest distance ``|h_t - h|`` (rows at norm 1, matched) over the last five rounds, None
    without a history. ``share`` is ``<W_l H_l, W H> / |W H|^2`` over all clients, ``client_shares`` the same at
    each client; shares sum to 1 over components. ``features`` are the largest entries of the row at norm 1.
    """

    component: int
    clients: int
    n_clients: int
    cosines: tuple[float, ...]
    stability: float
    drift: float | None
    share: float
    client_shares: tuple[float, ...]
    features: tuple[tuple[str | int, float], ...]


def passports(
    Xs: Sequence[Data],
    factor: Array,
    codes: Sequence[Array],
    *,
    seeds: int = 3,
    history_factors: Sequence[Array] | None = None,
    feature_names: Sequence[str] | None = None,
    top: int = 10,
    seed: int = 0,
) -> list[Passport]:
    """Return one :class:`Passport` per row of the factor (k x m), given each client's codes (n_j x k).

    Clients factorize alone and send one summary and the k x k gram of their codes (:func:`describe`); all else
    is done by the server (:func:`assemble`). ``history_factors`` are the shared factors of the rounds, oldest first.
    """
    data = kinds.check(NON_NEGATIVE, Xs)
    _check(data, factor, codes)

    def described(j: int) -> Message:
        return describe(data[j], factor, codes=codes[j], address=(seed, j))[0]

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        messages = list(pool.map(described, range(len(data))))
    return assemble(
        messages,
        factor,
        seeds=seeds,
        history_factors=history_factors,
        feature_names=feature_names,
        top=top,
        seed=seed,
    )


OWN_ROUNDS = 30
"""Rounds of a client alone from the shared factor."""
OWN_ROWS = 2000
"""Rows that show what a client finds alone, or 100 for each component.

Of clients with 6000 to 16 000 rows (digits, clothes, census, text, in order and not) 2000 drawn ones find as many of
the shared components as another seed of a fit of all rows does, in a fifth of the time or less.
"""


class Drawn(NamedTuple):
    """Rows that stand for all of a client's: scaled so that, in the mean, their squares add up to those of all."""

    rows: Array
    scale: Array

    def data(self, X: Data) -> Data:
        """Return these rows of the data."""
        return arrays.scaled_rows(arrays.rows(X, self.rows), self.scale)

    def codes(self, W: Array) -> Array:
        """Return the codes of these rows."""
        return W[self.rows] * self.scale.astype(W.dtype)[:, None]


class Own(NamedTuple):
    """Codes and factor of a client alone, of all its rows or of those that were ``drawn``."""

    codes: Array
    factor: Array
    drawn: Drawn | None = None


def own_cells(rows: int, features: int, rank: int) -> int:
    """Return how many cells a client looks at to see what it finds alone."""
    return min(rows, 2 * _enough(rank)) * features


def _enough(rank: int) -> int:
    return max(OWN_ROWS, 100 * rank)


def draw(X: Data, count: int, rng: np.random.Generator) -> Drawn | None:
    """Draw about ``count`` rows if there are at least twice as many: half evenly and half by their squares.

    Evenly drawn rows alone would miss the few in which most of some data lies, such as long texts. Each is drawn by
    itself, so that its chance is known: the rows that would have more than one are always there.
    """
    n = X.shape[0]
    if n < 2 * count:
        return None
    squares = arrays.row_squares(X)
    even = np.full(n, 1 / n)
    part = (even + squares / squares.sum()) / 2 if squares.any() else even
    sure, chance = np.zeros(n, bool), count * part
    while (more := (chance > 1) & ~sure).any():
        sure |= more
        chance = (count - sure.sum()) * part / part[~sure].sum()
    chance = np.where(sure, 1, chance)
    rows = np.flatnonzero(rng.random(n) < chance)
    return Drawn(rows, 1 / np.sqrt(chance[rows]))


def own_from(X: Data, factor: Array, address: tuple[int, int]) -> tuple[Array, Array]:
    """Client: codes and factor that some rounds on its rows alone make of the shared factor."""
    alone = Alone(Summed(len(factor)), rounds=OWN_ROUNDS)
    return alone(X, len(factor), rng(*address, 1), start=factor.astype(X.dtype))


def _in_single(alone: Alone, X: Data, k: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return (W, H) of a client alone, found in single precision, in which rows at a size of 1 have room: for half."""
    size = np.sqrt(arrays.square(X) / np.prod(X.shape)) or 1.0
    W, H = padded(alone, (X / size).astype(np.float32), k, rng)
    return W.astype(X.dtype) * X.dtype.type(size), H.astype(X.dtype)


def describe(
    X: Data, factor: Array, *, codes: Array, address: tuple[int, int], own: Own | None = None
) -> tuple[Message, Own]:
    """Client: its own summary ``factor`` (r x m) and ``gram`` (r x r), and ``code_gram = W^T W`` (k x k) of its codes.

    It is of its ``own`` codes and factor, where the client knows them, or else as the one-upload start finds them, in
    some of its rows where there are many: returned too, zeros where it has too few; ``address`` are seed and number of
    the client. A client of one row sends an empty summary: it would be that row.
    """
    k = len(factor)
    if own is None:
        generator = rng(*address, 0)
        drawn = draw(X, _enough(k), generator)
        alone = Alone(Summed(k))
        found = padded(alone, X, k, generator) if drawn is None else _in_single(alone, drawn.data(X), k, generator)
        own = Own(*found, drawn)
    V, H = own.codes, own.factor
    norms = np.linalg.norm(factor.astype(np.float64), axis=1)
    gram, code_gram = V.T.astype(np.float64) @ V, codes.T.astype(np.float64) @ codes
    sent = np.where(np.diag(gram)[:, None] > 0, H, 0).astype(H.dtype)
    said = {"factor": sent, "gram": gram, "code_gram": code_gram * np.outer(norms, norms)}
    return Message(said, float(X.shape[0])), own


def assemble(
    messages: Sequence[Message],
    factor: Array,
    *,
    seeds: int = 3,
    history_factors: Sequence[Array] | None = None,
    feature_names: Sequence[str] | None = None,
    top: int = 10,
    seed: int = 0,
) -> list[Passport]:
    """Server: turn what :func:`describe` sent into passports."""
    if seeds < 1 or top < 1:
        raise CofactorError(f"seeds and top must be at least 1. Found seeds={seeds}, top={top}.")
    H = unit(factor)
    names = _names(feature_names, H.shape[1])
    union = [Summary(m.arrays["factor"], m.arrays["gram"], m.weight, 0.0) for m in messages]
    grams = [m.arrays["code_gram"] for m in messages]
    *apart, whole = (shares(gram, H) for gram in [*grams, np.sum(grams, axis=0)])
    found = np.array([own_match(s, H, share) for s, share in zip(union, apart, strict=True)])
    stability, drift = _stability(union, H, seeds, seed), _drift(history_factors, H)
    return [
        Passport(
            component=i,
            clients=int(np.sum(found[:, i] >= FOUND)),
            n_clients=len(messages),
            cosines=tuple(found[:, i].tolist()),
            stability=float(stability[i]),
            drift=None if drift is None else float(drift[i]),
            share=float(whole[i]),
            client_shares=tuple(float(share[i]) for share in apart),
            features=_top(H[i], names, top),
        )
        for i in range(len(H))
    ]


def _stability(union: list[Summary], H: Array, seeds: int, seed: int) -> Array:
    """Mean matched cosine of every component over fits of the union from other seeds (k); 0 where nothing was sent."""
    if not any(s.gram.any() for s in union):
        return np.zeros(len(H))
    others = rng(seed, SERVER, 0).integers(2**31, size=seeds).tolist()
    return np.mean([cosines(H, fitted(union, len(H), seed=s, restarts=RESTARTS)) for s in others], axis=0)


def _drift(history: Sequence[Array] | None, H: Array) -> Array | None:
    """Largest distance of every component to its match in the last rounds (k)."""
    if not history:
        return None
    for t, past in enumerate(history):
        if past.shape != H.shape:
            raise CofactorError(f"history_factors[{t}]: expected shape {H.shape} like the factor, found {past.shape}.")
    return np.max([distances(H, past) for past in history[-LAST_ROUNDS:]], axis=0)


def _top(row: Array, names: Sequence[str] | None, top: int) -> tuple[tuple[str | int, float], ...]:
    """Return the largest entries above 0 by falling weight; equal weights in the order of the features."""
    order = np.argsort(-row, kind="stable")[:top]
    return tuple((int(i) if names is None else str(names[i]), float(row[i])) for i in order if row[i] > 0)


def _names(names: Sequence[str] | None, m: int) -> Sequence[str] | None:
    if names is not None and len(names) != m:
        raise CofactorError(f"feature_names: expected one name per feature ({m}), found {len(names)}.")
    return names


def _check(data: list[Data], factor: Array, codes: Sequence[Array]) -> None:
    """Refuse a factor or codes that do not belong to the data."""
    if factor.ndim != 2 or factor.shape[1] != data[0].shape[1]:
        raise CofactorError(f"factor: expected k x {data[0].shape[1]} features, found shape {factor.shape}.")
    if len(codes) != len(data):
        raise CofactorError(f"codes: expected one array per client ({len(data)}), found {len(codes)}.")
    for j, (X, W) in enumerate(zip(data, codes, strict=True)):
        if W.shape != (X.shape[0], len(factor)):
            raise CofactorError(f"client {j}: expected codes of {(X.shape[0], len(factor))}, found {W.shape}.")
