"""Work that a run repeats on a CUDA device as one graph: it is launched at once, and not kernel by kernel.

Small problems would otherwise wait for launches most of the time. Kernels, and so results, are the same. A run keeps
its graphs (:func:`kept`) and drops them, with their memory, when it ends; those of data go with the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from cofactor.local.placed import Placed
from cofactor.local.tensors import torch

Work = Callable[..., tuple[Any, ...]]
LARGE = 1 << 28
"""Bytes that go into a graph, at most: with more of them launches do not count, but memory does."""


class _Kept:
    """Graphs of a run: those of data, and those that read none."""

    def __init__(self) -> None:
        self.of_data: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()
        self.others: dict[Any, Any] = {}


_kept: ContextVar[_Kept | None] = ContextVar("_kept", default=None)


@contextmanager
def kept() -> Iterator[None]:
    """Keep graphs for what is repeated inside a ``with``."""
    with _keeping(_Kept()):
        yield


@contextmanager
def _keeping(runs: _Kept | None) -> Iterator[None]:
    token = _kept.set(runs)
    try:
        yield
    finally:
        _kept.reset(token)


def replayed(work: Work, data: Any, how: Any, *given: Any) -> tuple[Any, ...]:
    """Return ``work(*given)``, arrays out of arrays and numbers; from its third time on it is replayed.

    ``data`` (None: it reads none) and ``how`` (hashable) say what else it depends on, so that it is the same work
    whenever these and the forms of what is given are. In a graph numbers are arrays of one number, which nobody may
    look at: what depends on them must be computed there. Where there are no graphs to keep, it is simply done.
    """
    runs = _kept.get()
    if runs is None or not all(_can(a) for a in given):
        return work(*given)
    table = runs.others if data is None else runs.of_data.setdefault(data, {})
    key = how, tuple((a.shape, a.tensor.stride(), a.dtype.str) if isinstance(a, Placed) else () for a in given)
    if key not in table:  # kernels are compiled, and libraries made ready, where nobody records
        table[key] = None
        return work(*given)
    if table[key] is None:
        table[key] = Graph(work, given)
    return table[key](given)


def _can(a: Any) -> bool:
    if isinstance(a, Placed):
        return bool(a.tensor.is_cuda and a.nbytes <= LARGE)
    return isinstance(a, int | float)


class Graph:
    """One work on buffers of its own, recorded; a call fills them, and copies what comes out."""

    def __init__(self, work: Work, given: tuple[Any, ...]) -> None:
        device = next(a.tensor.device for a in given if isinstance(a, Placed))
        self.given = [a.tensor.clone() if isinstance(a, Placed) else _number(a, device) for a in given]

        def once() -> list[Any]:
            with _keeping(None):  # what is inside belongs to this graph, and has none of its own
                return [a.tensor for a in work(*map(Placed, self.given))]

        self.replay, self.found = recorded(once, device)

    def __call__(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Do the work with what is given now."""
        for own, new in zip(self.given, given, strict=True):
            _ = own.copy_(new.tensor) if isinstance(new, Placed) else own.fill_(new)
        self.replay()
        return tuple(Placed(a.clone()) for a in self.found)


def _number(value: float, device: Any) -> Any:
    return torch().full((), value, dtype=torch().float64, device=device)


def recorded(work: Callable[[], list[Any]], device: Any) -> tuple[Callable[[], Any], list[Any]]:
    """Record work on a CUDA device; return what replays it, and the tensors that it fills."""
    cuda = torch().cuda
    graph, aside, here = cuda.CUDAGraph(), cuda.Stream(device), cuda.current_stream(device)
    aside.wait_stream(here)
    with cuda.stream(aside):
        graph.capture_begin(capture_error_mode="thread_local")
        found = work()
        graph.capture_end()
    here.wait_stream(aside)
    return graph.replay, found
