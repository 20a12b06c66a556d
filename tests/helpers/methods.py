"""For every name of the catalog a small method and clients' data of its kind: what the laws run over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cofactor.data import synthetic
from cofactor.method import SERVER, Method, rng, total
from cofactor.methods import catalog
from cofactor.methods.blocks import Blocks, blocks
from cofactor.privacy.allowance import Privacy
from cofactor.types import Array, Data, Local, Message, Shared

KIND = {name: kind for kind in catalog.KINDS for name in catalog.names(kind)}
"""Every name of the catalog, with its kind."""
NAMES = list(KIND)
ROWS, FEATURES, RANK = (23, 31, 17), 12, 3
ROUNDS = 5
"""A run of so many rounds is long enough for every small method: blocks need all of theirs, and have these."""
BUDGET = Privacy(1.0, 1e-6, insecure_seed=1)


class Case(NamedTuple):
    """A small method with data that it takes."""

    kind: str
    method: Method
    Xs: list[Data]


def case(name: str, *, rank: int = RANK, rows: Sequence[int] = ROWS, features: int = FEATURES, **options: Any) -> Case:
    """Return a small method of this name and clients with so many rows."""
    return Case(KIND[name], make(name, rank, shape=(sum(rows), features), **options), data(KIND[name], rows, features))


def make(name: str, rank: int = RANK, *, shape: tuple[int, int] = (sum(ROWS), FEATURES), **options: Any) -> Method:
    """Return a small method of this name; ``shape`` is that of all rows, which methods on blocks must know."""
    needed: dict[str, Any] = {}
    if KIND[name] == "blocks":
        needed = {"shape": shape, "iterations": ROUNDS // 2}
    if KIND[name] == "private":
        needed = {"privacy": BUDGET}
    return catalog.make(name, rank, **{**needed, **options})


def data(kind: str, rows: Sequence[int] = ROWS, features: int = FEATURES, seed: int = 4) -> list[Data]:
    """Return what clients with so many rows hold; signed where the kind allows it."""
    numbers = synthetic.blocks(len(rows), list(rows), features=features, rank=3, seed=seed).Xs
    draw = np.random.default_rng(seed)
    if kind == "boolean":
        tiles = synthetic.tiles(sum(rows), features, 3, noise=0.03, width=(0.2, 0.4), seed=seed)
        return _cut(tiles.X.astype(np.float64), rows)
    if kind == "ratings":
        return [sparse.csr_matrix(np.ceil(5 * draw.random(X.shape)) * (draw.random(X.shape) < 0.6)) for X in numbers]
    if kind == "clusters":
        centres = 3 * draw.normal(size=(3, features))
        return [centres[draw.integers(3, size=n)] + draw.normal(size=(n, features)) for n in rows]
    if kind == "gaps":
        return [np.where(draw.random(X.shape) < 0.1, np.nan, X) for X in numbers]
    return blocks(np.vstack(numbers), len(rows)) if kind == "blocks" else numbers


def _cut(X: Array, rows: Sequence[int]) -> list[Array]:
    return np.split(X, np.cumsum(rows)[:-1])


def change(X: Data, work: Any) -> Data:
    """Return a client's data with ``work`` done to its matrix, or to both of its blocks."""
    if isinstance(X, Blocks):
        return Blocks(work(X.row_block), work(X.column_block), X.first_row, X.first_column)
    return work(X)


def dense(X: Data) -> Array:
    """Return the rows of a client as an array."""
    X = X.row_block if isinstance(X, Blocks) else X
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


class Played(NamedTuple):
    """One round that was carried out by hand."""

    t: int
    messages: list[Message]
    shared: Shared
    states: list[Local]


def play(
    method: Method, Xs: Sequence[Data], rounds: int = ROUNDS, *, sums: bool = False, who: Any = None
) -> Iterator[Played]:
    """Run by hand, as a real federation would: clients see the broadcast only, and join where a stage begins.

    With ``sums`` the server is given the total of the messages. ``who(t)`` are the clients of a round; the others stay
    as they are.
    """
    shared = method.start(Xs[0].shape[1], rng(0, SERVER, -1))
    states: list[Local] = []
    for t in range(min(rounds, method.rounds or rounds)):
        seen = shared.broadcast()
        if t in method.traits.stages:
            states = [method.join(X, seen, t, rng(0, j, -1)) for j, X in enumerate(Xs)]
        messages = []
        for j in range(len(Xs)) if who is None else who(t):
            states[j], message = method.step(Xs[j], seen, states[j], t, rng(0, j, t))
            messages.append(message)
        shared = method.aggregate(shared, [total(messages)] if sums else messages, t)
        yield Played(t, messages, shared, list(states))


def first(method: Method, X: Data, client: int = 0) -> tuple[Shared, Local, Message]:
    """Return what the server sends in the beginning, and state and message of one client's first step."""
    shared = method.start(X.shape[1], rng(0, SERVER, -1)).broadcast()
    joined = method.join(X, shared, 0, rng(0, client, -1))
    return shared, *method.step(X, shared, joined, 0, rng(0, client, 0))


def same_bits(a: Any, b: Any) -> None:
    """Assert that two runs are the same: factor, codes, and all of the history but its seconds."""
    np.testing.assert_array_equal(a.factor, b.factor)
    for V, W in zip(a.codes, b.codes, strict=True):
        np.testing.assert_array_equal(V, W)
    for name in ("loss", "drift", "epsilon"):
        np.testing.assert_array_equal([getattr(r, name) for r in a.history], [getattr(r, name) for r in b.history])
    for name in ("round", "stage", "bytes_up", "bytes_down", "participants"):
        assert [getattr(r, name) for r in a.history] == [getattr(r, name) for r in b.history], name


def factor_fits(kind: str, H: Array, *, rank: int = RANK, features: int = FEATURES) -> None:
    """Assert that a factor is what its kind has: rows >= 0 of norm 1, bits, centres, or items with their biases."""
    assert np.isfinite(H).all()
    if kind == "boolean":
        assert H.dtype == np.uint8
        assert set(np.unique(H)) <= {0, 1}
    elif kind == "ratings":  # [h_i, 1, c_i, mean], of any sign
        np.testing.assert_array_equal(H[rank], 1)
        assert len(np.unique(H[rank + 2])) == 1
    elif kind != "clusters":  # centres have any sign and any length
        assert H.min() >= 0
        np.testing.assert_allclose(np.linalg.norm(H, axis=1), 1, rtol=1e-6)
    assert H.shape == (rank + 3 if kind == "ratings" else rank, features)


def codes_fit(kind: str, W: Array, *, rank: int = RANK) -> None:
    """Assert that codes are what their kind has: numbers >= 0, bits, shares that add up to 1, or users with biases."""
    assert np.isfinite(W).all()
    assert W.shape[1] == (rank + 3 if kind == "ratings" else rank)
    if kind == "ratings":  # [w_u, b_u, 1, 1], of any sign
        np.testing.assert_array_equal(W[:, rank + 1 :], 1)
        return
    assert W.min() >= 0
    if kind == "boolean":
        assert W.dtype == np.uint8
        assert W.max(initial=0) <= 1
    if kind == "clusters":
        np.testing.assert_allclose(W.sum(axis=1), 1, rtol=1e-6)


def in_its_order(H: Array, other: Array) -> Array:
    """Return H with its components (rows at norm 1) in the order of the other factor's; each has one partner."""
    order = np.argmax(other @ H.T, axis=1)
    assert sorted(order) == list(range(len(H)))
    return H[order]
