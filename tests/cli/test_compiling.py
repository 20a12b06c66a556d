"""Loops that are compiled beforehand: first fits find them on disk."""

import os
import subprocess
import sys
from pathlib import Path

FITS = """
import warnings
import numpy as np
from scipy import sparse
from cofactor import FederatedBMF, FederatedMF, FederatedNMF
warnings.simplefilter("ignore")
rng = np.random.default_rng(1)
X, text = rng.random((2500, 350)), sparse.random(3000, 4000, 0.01, format="csr", random_state=1)
for data in (X, X.astype("f"), text, text.astype("f")):
    FederatedNMF(12, random_state=0).fit(data)
    FederatedNMF(12, random_state=0).fit([data[i::7] for i in range(7)])
FederatedMF(6, random_state=0).fit(text[:500])
for dtype in (bool, float):
    FederatedBMF(6, random_state=0).fit([(X[i::7] > 0.8).astype(dtype) for i in range(7)])
"""


def test_fits_after_it_compile_nothing(tmp_path: Path) -> None:
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def loops() -> set[str]:
        return {path.name for path in tmp_path.rglob("*.nbc")}

    said = subprocess.run(
        [sys.executable, "-m", "cofactor", "compile"], env=env, check=True, capture_output=True, text=True
    )
    assert "sparse, one client" in said.stdout
    made = loops()
    assert len(made) > 20
    subprocess.run([sys.executable, "-c", FITS], env=env, check=True)
    assert loops() == made
