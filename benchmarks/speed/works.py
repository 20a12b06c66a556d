"""This project at work, beside what the hardware asks for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matrices
import numpy as np
from scipy import sparse

import cofactor
from cofactor.data.load import read
from cofactor.engines.host import Host
from cofactor.local import arrays, sketch
from cofactor.local.kernels import dense_products
from cofactor.local.threads import each, lend
from cofactor.method import SERVER, rng
from cofactor.methods import catalog
from cofactor.methods.blocks import blocks

FOLDER = Path(tempfile.gettempdir()) / "cofactor-bench"

PRODUCTS = [
    *((arrays, name) for name in ("times_factor", "times_codes", "times_picked")),
    *((sketch, name) for name in ("left", "right", "fold")),
]
"""Products with X, and with the S of a sketch."""


class Rounds:
    """Clients of one process and their server; every call is a round."""

    def __init__(self, method: Any, Xs: list[Any]) -> None:
        self.method, self.host, self.t = method, Host(method, Xs, 0), 0
        self.shared = method.start(Xs[0].shape[1], rng(0, SERVER, -1))
        self.who = np.arange(len(Xs))
        self(), self()

    def __call__(self) -> None:
        """Step all clients and the server."""
        answers = self.host.step(self.shared.broadcast(), self.t, self.who)
        self.shared = self.method.aggregate(self.shared, [a.message for a in answers], self.t)
        self.t += 1


def exact(X: Any, k: int) -> dict[str, Any]:
    """A round of `exact`, its two products, and those of scipy where X is sparse."""
    rng_ = np.random.default_rng(0)
    H, W = rng_.uniform(size=(k, X.shape[1])).astype(X.dtype), rng_.uniform(size=(X.shape[0], k)).astype(X.dtype)

    def products() -> None:
        arrays.times_factor(X, H)
        arrays.times_codes(X, W)

    def plain() -> None:
        _ = X @ H.T
        _ = X.T @ W

    name = "scipy's products" if sparse.issparse(X) else "numpy's products"
    return {name: plain, "products": products, "round": Rounds(catalog.make("exact", k, start="random"), [X])}


def on_threads(work: Callable[[], object], count: int) -> Callable[[], None]:
    """Return work to which so many threads are lent."""

    def call() -> None:
        with lend(count):
            work()

    return call


def threaded_dense() -> dict[str, Any]:
    """The same round on one and on two threads."""
    work = exact(matrices.dense("float32"), 50)["round"]
    return {"one thread": on_threads(work, 1), "two threads": on_threads(work, 2)}


def threaded_sparse() -> dict[str, Any]:
    """The same, next to what scipy does."""
    works = exact(matrices.sparse(), 50)
    plain = works["scipy's products"]
    return {
        "scipy's products": plain,
        **{f"{w} thread{'s'[: i > 0]}": on_threads(works["round"], i + 1) for i, w in enumerate(("one", "two"))},
    }


def contained(name: str, n: int, m: int) -> dict[str, Any]:
    """Rounds of another method; their floor are the products with X or with a sketch that were called in such rounds.

    These are called again on what they were given, what one made for the next as it is made now: both are many calls
    under one clock, in the same order and on arrays that lie as they did. Once more, dense ones are left to BLAS.
    """
    X = matrices.dense("float32", n, m, 30)
    if name == "felb":
        X = (X > np.median(X)).astype(np.float32)
    options = {"shape": X.shape, "iterations": 1000} if name == "dsanls" else {}
    Xs = blocks(X, 1) if name == "dsanls" else [X]
    work = Rounds(catalog.make(name, 30, **options), Xs)
    turns = work.method.traits.every if name == "dsanls" else 1  # codes and factor in turn, and once the whole factor
    calls: list[tuple[Any, tuple[Any, ...], Any]] = []

    def a_round() -> None:
        for _ in range(turns):
            work()

    def products() -> None:
        made: dict[int, Any] = {}  # no more than is asked for: memory is used again, as in a round
        for product, given, found in calls:
            out = product(*(made.pop(id(a), a) for a in given))
            if id(found) in taken:
                made[id(found)] = out

    def by_numpy() -> None:
        own, dense_products.THIN = dense_products.THIN, 0
        try:
            products()
        finally:
            dense_products.THIN = own

    with _noted(calls):
        a_round()
    taken = {id(a) for _, given, _ in calls for a in given}
    return {"numpy's products": by_numpy, "products": products, "round": a_round}


@contextmanager
def _noted(calls: list[tuple[Any, tuple[Any, ...], Any]]) -> Iterator[None]:
    """Keep every product that is called inside a ``with``: which, of what, and what came out."""
    plain = {(room, called): getattr(room, called) for room, called in PRODUCTS}

    def noting(product: Any) -> Any:
        def call(*given: Any) -> Any:
            calls.append((product, given, out := product(*given)))
            return out

        return call

    for (room, called), product in plain.items():
        setattr(room, called, noting(product))
    try:
        yield
    finally:
        for (room, called), product in plain.items():
            setattr(room, called, product)


def from_disk(rows: int, ranks: tuple[int, ...] = (10, 50)) -> dict[str, Any]:
    """Rounds over a file of ``rows`` thousand rows of 1000 values, and reading it once; all in the page cache."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"rows-{rows}.npy"
    if not path.exists():
        needed, room = rows * 4_000_000, shutil.disk_usage(FOLDER).free
        if room < 2 * needed:
            raise OSError(f"expected {2 * needed >> 20} MB of room in {FOLDER}, found {room >> 20}")
        begun = path.with_suffix(".part")  # one that is interrupted is not taken for a whole one
        out = np.lib.format.open_memmap(begun, "w+", np.float32, (rows * 1000, 1000))
        for i in range(rows):
            out[i * 1000 : (i + 1) * 1000] = np.random.default_rng(i).random((1000, 1000), np.float32)
        del out
        begun.replace(path)
    X = read(path, blocks=True).X
    found: dict[str, Any] = {
        "read": lambda: _read(path, 32 << 20),
        "read, 4 MB at a time": lambda: _read(path, 4 << 20),
    }
    for k in ranks:
        work = Rounds(catalog.make("exact", k, start="random"), [X])
        found |= {
            f"products, k = {k}, two threads": on_threads(_products_of_blocks(X, k), 2),
            f"round, k = {k}": on_threads(work, 1),
            f"round, k = {k}, two threads": on_threads(work, 2),
        }
    return found


def _products_of_blocks(X: Any, k: int) -> Callable[[], None]:
    """As many products of one block with a factor and with codes as X has blocks, a block for each thread."""
    block = X.row_block(X.slices()[0])
    H, W = np.ones((k, X.shape[1]), X.dtype), np.ones((len(block), k), X.dtype)

    def both(_: slice) -> None:
        arrays.times_factor(block, H)
        arrays.times_codes(block, W)

    def call() -> None:
        for _ in each(both, X.slices()):
            pass

    return call


def _read(path: Path, count: int) -> None:
    buffer = bytearray(count)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _new(*arguments: str, **environment: str) -> Callable[[], object]:
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment}  # as it is where nobody asked for that
    return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=env)


def imports() -> dict[str, Any]:
    """Start-up of the libraries."""
    return {name: _new("-c", f"import {name}") for name in ("numpy", "sklearn.decomposition", "cofactor")}


def commands() -> dict[str, Any]:
    """`cofactor fit` of a copy that never ran (no bytecode, no kernels), and of one that did."""
    FOLDER.mkdir(exist_ok=True)
    package = Path(cofactor.__file__).parent
    toys = [str(FOLDER / f"toy-{i}.npy") for i in (0, 1)]
    for i, path in enumerate(toys):
        np.save(path, np.random.default_rng(i).uniform(size=(30, 8)))

    def fit(home: Path) -> None:
        with tempfile.TemporaryDirectory() as out:
            here = {"PYTHONPATH": str(home), "NUMBA_CACHE_DIR": str(home / "kernels")}
            _new("-m", "cofactor", "fit", *toys, "-k", "2", "--out", f"{out}/run", **here)()

    def copied(home: Path) -> Path:
        shutil.copytree(package, home / "cofactor", ignore=shutil.ignore_patterns("__pycache__"))
        return home

    warm = copied(Path(tempfile.mkdtemp(dir=FOLDER)))
    fit(warm)

    def first() -> float:
        with tempfile.TemporaryDirectory() as home:
            copied(Path(home))
            begin = time.perf_counter()
            fit(Path(home))
            return time.perf_counter() - begin

    return {"python": _new("-c", ""), "first": first, "later": lambda: fit(warm)}
