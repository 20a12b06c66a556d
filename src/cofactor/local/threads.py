"""Threads over the rows of one matrix, where whoever is in charge of the cores has lent some.

The default is one: clients that run side by side have a core each already. A run that has cores to spare lends them to
its own thread with :func:`lend`; threads that it starts begin at one again.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from cofactor.types import Array

T = TypeVar("T")
R = TypeVar("R")
WORTH = 1 << 21
"""Multiplications that are worth a thread: about the tenth part of a millisecond."""
BRINGS_BLAS = ("numpy", "scipy.linalg", "scipy.sparse.linalg", "scipy.optimize", "sklearn", "torch", "ot")
"""Packages with libraries of their own that start threads."""
PIECES = 4
"""Pieces of work for each thread: who is sooner done takes more of them, so that the slower core decides less."""
TURNED = 16
"""Multiplications that take as long as one number that is copied into another order."""
LINE = 16
"""Rows or columns of a dense product are shared in such steps: numbers of a line of cache belong to one thread."""


class _Crew(NamedTuple):
    size: int
    pool: ThreadPoolExecutor


_crew: ContextVar[_Crew | None] = ContextVar("_crew", default=None)


@contextmanager
def lend(count: int) -> Iterator[None]:
    """Let work over rows that is called from this thread use ``count`` threads, this one among them.

    BLAS has one meanwhile, also where nothing is lent: its threads would stand in the way of ours.
    """
    if count <= 1:
        with single_blas():
            yield
        return
    with single_blas(), ThreadPoolExecutor(count - 1) as pool:
        token = _crew.set(_Crew(count, pool))
        try:
            yield
        finally:
            _crew.reset(token)


def over_rows(work: Callable[[int, int], object], n: int, cost: int, step: int = 1) -> None:
    """Call ``work(start, stop)`` so that 0..n is covered once, by the threads that were lent.

    ``cost`` is the number of multiplications of a row: little work stays in one piece. Pieces begin at multiples of
    ``step``. What is computed must not depend on how rows are cut. Pieces of much work are smaller than a share each:
    this thread also takes those that no other has begun.
    """
    crew, most = _crew.get(), n * cost // WORTH
    pieces = 1 if crew is None else max(min(crew.size, most), min(crew.size * PIECES, most // PIECES))
    pieces = min(pieces, -(-n // step))
    if crew is None or pieces <= 1:
        work(0, n)
        return
    width = -(-n // (pieces * step)) * step
    starts = range(0, n, width)
    waiting = [crew.pool.submit(work, start, min(start + width, n)) for start in starts[1:]]
    work(0, starts[1])
    for start, piece in zip(reversed(starts), reversed(waiting), strict=False):
        if piece.cancel():
            work(start, min(start + width, n))
    for piece in waiting:
        if not piece.cancelled():
            piece.result()


def copy_rows(out: Array, A: Array) -> None:
    """Copy A (n x k) into ``out`` by the threads that were lent."""
    over_rows(lambda start, stop: np.copyto(out[start:stop], A[start:stop]), A.shape[0], TURNED * A.shape[1], LINE)


def single_blas() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread inside a ``with``, in the whole process.

    The libraries are looked for again only when another package has brought some: that takes milliseconds.
    """
    return _libraries(tuple(name for name in BRINGS_BLAS if name in sys.modules)).limit(limits=1, user_api="blas")


@cache
def _libraries(packages: tuple[str, ...]) -> ThreadpoolController:
    return ThreadpoolController()


def worth(cost: int) -> int:
    """Return how many of the threads that were lent ``cost`` multiplications are worth."""
    return max(min(lent(), cost // WORTH), 1)


def product(A: Array, B: Array) -> Array:
    """``A B``, rows of A shared among the threads that were lent: BLAS has one there, which waits for nobody.

    A thread of BLAS that has nothing to do any more keeps a core busy for some milliseconds, and so keeps ours off it.
    """
    out = np.empty((A.shape[0], B.shape[1]), np.result_type(A, B))
    over_rows(lambda start, stop: np.matmul(A[start:stop], B, out=out[start:stop]), A.shape[0], B.size, LINE)
    return out


def lent() -> int:
    """Return how many threads work that is called from here may use, this one among them."""
    crew = _crew.get()
    return 1 if crew is None else crew.size


def in_turn(work: Callable[[T], R], items: Iterable[T], threads: int, ahead: int) -> Iterator[R]:
    """Yield ``work(item)`` of every item in their order, by that many threads; no more than ``ahead`` are ahead."""
    with ThreadPoolExecutor(threads) as pool:
        coming: deque[Future[R]] = deque()
        for item in items:
            coming.append(pool.submit(work, item))
            if len(coming) > ahead:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def each(work: Callable[[T], R], items: Sequence[T]) -> Iterable[R]:
    """Return ``work(item)`` of every item, in their order, as ``map`` does; threads that were lent take one by one.

    They begin at the first item, this thread at the last. Within ``work`` there is one thread.
    """
    crew = _crew.get()
    if crew is None or len(items) <= 1:
        return map(work, items)
    token = _crew.set(None)
    try:
        waiting = [crew.pool.submit(work, item) for item in items]
        mine = {i: work(items[i]) for i in reversed(range(len(items))) if waiting[i].cancel()}
        return [mine[i] if i in mine else waiting[i].result() for i in range(len(items))]
    finally:
        _crew.reset(token)
