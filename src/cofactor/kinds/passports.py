"""Component passports: where a component is found, how stable it is, what it is made of, how much it explains."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from cofactor import kinds
from cofactor.kinds.kind import Kind
from cofactor.kinds.matching import cosines, distances, fitted, own_match, unit
from cofactor.kinds.numbers import NON_NEGATIVE
from cofactor.kinds.own_fits import Own, found_alone, own_from
from cofactor.local.stacked import Summary
from cofactor.local.stats import shares
from cofactor.method import rng
from cofactor.types import Array, CofactorError, Data, Message

FOUND = 0.8
LAST_ROUNDS = 5
"""How far components have come in so many rounds says how settled they are."""
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


def describe(
    X: Data, factor: Array, *, codes: Array, address: tuple[int, int], own: Own | None = None
) -> tuple[Message, Own]:
    """Client: its own summary ``factor`` (r x m) and ``gram`` (r x r), and ``code_gram = W^T W`` (k x k) of its codes.

    It is of its ``own`` codes and factor, where the client knows them, or else as the one-upload start finds them, in
    some of its rows where there are many: returned too, zeros where it has too few; ``address`` are seed and number of
    the client. A client of one row sends an empty summary: it would be that row.
    """
    own = own or found_alone(X, len(factor), rng(*address, 0))
    V, H = own.codes, own.factor
    norms = np.linalg.norm(factor.astype(np.float64), axis=1)
    gram, code_gram = V.T.astype(np.float64) @ V, codes.T.astype(np.float64) @ codes
    sent = np.where(np.diag(gram)[:, None] > 0, H, 0).astype(H.dtype)
    said = {"factor": sent, "gram": gram, "code_gram": code_gram * np.outer(norms, norms)}
    return Message(said, float(X.shape[0])), own


class Judged(NamedTuple):
    """What one client finds of the result: what of its errors adds up, and where components are compared a summary.

    ``own`` is the tally of what the client reaches alone, where it reaches anything.
    """

    tally: Array
    summary: Message | None = None
    own: Array | None = None


def judged(kind: Kind, method: Any, client: Any, factor: Array, seed: int | None = None) -> Judged:
    """Client: how well its codes fit its rows; with a ``seed`` also what it finds alone, in the run's start or now.

    That is no less than with the shared factor, which it might have. Its own start can end elsewhere; then a few rounds
    from the shared factor tell what sharing costs. Where it has looked at some of its rows, what it gains there is
    taken for that of all.
    """
    tally = kind.tally(method, client.data, client.codes, factor)
    if seed is None:
        return Judged(tally)
    address, own = (seed, client.number), None if client.own is None else Own(*client.own)
    summary, own = describe(client.data, factor, codes=client.codes, address=address, own=own)
    if not summary.arrays["gram"].any():
        return Judged(tally, summary)

    def error(tally: Array) -> float:
        return kind.score(tally).error

    X, with_all = client.data, tally
    if own.drawn is not None:
        X = own.drawn.data(X)
        with_all = kind.tally(method, X, own.drawn.codes(client.codes), factor)
    alone = kind.tally(None, X, own.codes, own.factor)
    if error(alone) > error(with_all) and method.traits.apart is None:  # which has more than a factor
        alone = min(with_all, kind.tally(None, X, *own_from(X, factor, rng(*address, 1))), key=error)
    if own.drawn is not None and with_all[0]:
        alone = np.array([tally[0] * alone[0] / with_all[0], *tally[1:]])
    return Judged(tally, summary, alone)


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
    others = range(seed + 1, seed + 1 + seeds)
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
