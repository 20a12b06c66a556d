"""Which of several matrices have cells in common: told by where they lie, and not by what is in them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.local.devices import is_tensor
from cofactor.local.tensors import torch
from cofactor.types import Array

WORK: Any = 10_000
"""How hard numpy tries to tell cells apart that lie between each other; slices of a matrix take less than a hundred."""

_OBJECTS = ("dok", "lil")
"""Sparse layouts that hold their cells as objects of Python, which no two matrices share."""


def known_by(X: Any) -> Hashable:
    """Return what tells one matrix from another: the object, or of all rows of a file, which are read later, the file.

    >>> known_by(WORK) == known_by(WORK), known_by([]) == known_by([[]])
    (True, False)
    """
    source = getattr(X, "source", None)
    path = getattr(source, "path", None)
    if not isinstance(path, Path) or not path.exists():
        return id(X)
    return *_file(path), getattr(source, "name", "")


def _file(path: Any) -> tuple[int, int]:
    """Return what tells a file from another, whatever leads to it."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def first_overlap(Xs: Iterable[Any]) -> tuple[int, int] | None:
    """Return two of the matrices, the later one last, that have cells of one memory; None where there are none.

    >>> X = np.ones((6, 2))
    >>> first_overlap([X[:3], X[3:]]), first_overlap([X[:4], np.ones((2, 2)), X[3:]])
    (None, (0, 2))
    """
    spans = [(*_span(a), j, a) for j, X in enumerate(Xs) for a in _cells(X) if a.size]
    found = _meeting(spans, _share)
    for mapped in _files(spans).values():
        found += _meeting(mapped, lambda a, b: a is not b)
    return None if not found else min(found)[::-1]


Spans = list[tuple[int, int, int, Any]]
"""Where cells begin and end, whose they are, and what holds them."""


def _meeting(spans: Spans, share: Callable[[Any, Any], bool]) -> list[tuple[int, int]]:
    """Return the pairs of matrices, the later one first, whose spans meet, and whose holders ``share`` cells."""
    reaching: list[tuple[int, int, Any]] = []
    found = []
    for low, high, j, a in sorted(spans, key=lambda span: span[:3]):
        reaching = [other for other in reaching if other[0] > low]
        found += [(max(i, j), min(i, j)) for _, i, b in reaching if i != j and share(a, b)]
        reaching.append((high, j, a))
    return found


def _files(spans: Spans) -> dict[tuple[int, int], Spans]:
    """Return the spans within files that are mapped, by file: one that is mapped twice is at two places in memory.

    What holds the cells is then the map: of one map their memory tells more.
    """
    found: dict[tuple[int, int], Spans] = {}
    for low, high, j, cells in spans:
        a = cells
        while isinstance(a, np.ndarray) and not isinstance(a, np.memmap):
            a = a.base
        if not isinstance(a, np.memmap) or a.filename is None or not os.path.exists(a.filename):
            continue
        held = vars(a)["_mmap"]
        moved = a.offset - a.offset % mmap.ALLOCATIONGRANULARITY - _span(np.frombuffer(held, np.uint8))[0]
        found.setdefault(_file(a.filename), []).append((low + moved, high + moved, j, held))
    return found


def _cells(X: Any) -> list[Array]:
    if is_tensor(X):
        return _bytes(X.detach())
    if isinstance(X, np.ndarray):
        return [X]
    if not sparse.issparse(X) or X.format in _OBJECTS:
        return []
    return [X.data]


def _bytes(X: Any) -> list[Array]:
    """Return the bytes of a tensor in memory, of a type and a layout that numpy may not know."""
    if X.layout != torch().strided:
        X = X._values() if X.layout == torch().sparse_coo else X.values()
    X = X.T if X.ndim == 2 and X.stride(0) == 1 else X
    in_rows = X.device.type == "cpu" and X.ndim and X.stride(-1) == 1
    return [X.view(torch().int8).numpy()] if in_rows else []


def _span(a: Array) -> tuple[int, int]:
    """Return where its memory begins and ends."""
    begin = a.__array_interface__["data"][0]
    reach = [(n - 1) * step for n, step in zip(a.shape, a.strides, strict=True)]
    return begin + sum(r for r in reach if r < 0), begin + sum(r for r in reach if r > 0) + a.itemsize


def _share(a: Array, b: Array) -> bool:
    try:
        return bool(np.shares_memory(a, b, max_work=WORK))
    except np.exceptions.TooHardError:
        return True
