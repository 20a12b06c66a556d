"""``cofactor compile``: loops are compiled when an installation is made, and nobody's first fit waits for them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

from cofactor.cli.console import Console
from cofactor.estimators.bmf import FederatedBMF
from cofactor.estimators.mf import FederatedMF
from cofactor.estimators.nmf import FederatedNMF

CLIENTS = 10
ROUNDS = 12


def fits() -> Iterator[tuple[str, Callable[[Any], object], list[Any]]]:
    """Yield what is fitted, by name, and to what: data large enough that no loop is left out, as it is for toys."""
    rng = np.random.default_rng(0)
    X = rng.random((2000, 10)) @ rng.random((10, 300))
    bits = (rng.random((1000, 8)) < 0.2).astype(int) @ (rng.random((8, 300)) < 0.2).astype(int) > 0
    text = sparse.random(3000, 5000, 0.01, format="csr", random_state=0)
    real, counts = FederatedNMF(10, rounds=ROUNDS), FederatedNMF(10, rounds=ROUNDS, beta_loss="kullback-leibler")
    for name, data in (("dense", X), ("sparse", text)):
        both = [data.astype(dtype) for dtype in (np.float64, np.float32)]
        yield f"{name}, one client", real.fit_transform, both
        yield f"{name}, {CLIENTS} clients", real.fit, list(map(_parts, both))
    yield "counts", counts.fit, [_parts(rng.poisson(X))]
    yield "ratings", FederatedMF(8, rounds=ROUNDS).fit, [text[:600, :2000]]
    for method in ("boolean-oneshot", "felb"):
        yield (
            f"zeros and ones, {method}",
            FederatedBMF(8, method=method).fit,
            [_parts(bits), _parts(bits.astype(float))],
        )


def _parts(X: Any) -> list[Any]:
    return [X[i::CLIENTS] for i in range(CLIENTS)]


def compile_all(*, quiet: bool) -> None:
    """Fit all, and say how long each took."""
    console = Console()
    for name, fit, data in fits():
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for X in data:
                fit(X)
        if not quiet:
            console.print(f"  {name:32s} {time.perf_counter() - begin:5.1f} s", highlight=False)
