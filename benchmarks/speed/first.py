"""First fits of new processes: with no loops on disk, as in a new installation, and with those of an earlier one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

HEAD = """
import time, warnings
import numpy as np
from scipy import sparse
from cofactor import FederatedBMF, FederatedMF, FederatedNMF
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.random((2000, 10)) @ rng.random((10, 300))
bits = ((rng.random((1000, 8)) < 0.2).astype(int) @ (rng.random((8, 300)) < 0.2).astype(int) > 0).astype(float)
text = sparse.random(3000, 5000, 0.01, format="csr", random_state=0)
begin = time.process_time()
{fit}
print(time.process_time() - begin)
"""
FITS = {
    "2000 x 300": "FederatedNMF(10, random_state=0).fit(X)",
    "ten clients": "FederatedNMF(10, random_state=0).fit([X[i::10] for i in range(10)])",
    "sparse": "FederatedNMF(10, random_state=0).fit(text)",
    "ratings": "FederatedMF(8, random_state=0).fit(text[:600, :2000])",
    "boolean-oneshot": "FederatedBMF(8, random_state=0).fit(bits)",
    "felb": "FederatedBMF(8, method='felb', random_state=0).fit([bits[i::10] for i in range(10)])",
}


def fits() -> dict[str, Any]:
    """A fit of every kind, imports before it and data not counted: first without loops on disk, then with them."""
    kept = tempfile.TemporaryDirectory()  # gone with these works
    works = {}
    for name, fit in FITS.items():
        works |= {f"{name}, first": _new(fit), f"{name}, later": _new(fit, kept)}
        works[f"{name}, later"]()
    return works


def _new(fit: str, cache: tempfile.TemporaryDirectory[str] | None = None) -> Callable[[], float]:
    def call() -> float:
        with tempfile.TemporaryDirectory() as empty:
            env = {**os.environ, "NUMBA_CACHE_DIR": cache.name if cache else empty}
            done = [sys.executable, "-c", HEAD.format(fit=fit)]
            return float(subprocess.run(done, check=True, capture_output=True, text=True, env=env).stdout)

    return call
