"""What a run says of its clients and components once it has ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from cofactor.engines.outcome import Run
from cofactor.engines.over import ALONE, SURE
from cofactor.method import Method
from cofactor.types import Array


def settled(found: Run, method: Method, k: int, used: Array | None, apart: tuple[Iterable[int], Iterable[int]]) -> Run:
    """Return a run with clients that had no part, and components that are zeros, of no row or of one, or unsure.

    Those set ``apart`` are the clients that are absent, and those that nobody drew.

    Biases and the mean of ratings, rows of the factor below its ``k`` components, are none; beside them a component is
    nothing that moves no rating by a millionth of theirs: a ridge takes it away by shares, and never to the end. Of
    clusters only those without rows are nothing: a centre may lie at 0, as that of rows of zeros does.
    """
    factor, codes = np.asarray(found.factor), [np.asarray(W) for W in found.codes]  # which may be on a device
    alive = np.asarray(factor[:k].any(axis=1)) | (method.traits.kind == "clusters")
    used = None if used is None or used.shape[1] < len(alive) else used
    if used is not None and used.shape[1] == len(factor) > k:
        reach = used[0] * np.abs(factor).max(axis=1)
        alive &= reach[:k] > 1e-6 * reach.max()
    if used is not None:
        used = used[:, :k]
        alive &= used[0] > 0
    empty = tuple(np.flatnonzero(~alive).tolist())
    rows = found.sizes if found.sizes is not None else used[1] if used is not None else np.zeros(len(alive))
    single = tuple(np.flatnonzero(alive & (np.abs(rows - 1) < ALONE)).tolist())
    unsure = () if found.stability is None else tuple(np.flatnonzero(alive & (found.stability < SURE)).tolist())
    told: dict[str, Any] = dict(zip(("absent", "undrawn"), (tuple(map(int, those)) for those in apart), strict=True))
    return replace(found, factor=factor, codes=codes, empty=empty, single=single, unsure=unsure, **told)
