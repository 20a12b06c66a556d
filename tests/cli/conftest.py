"""Files of hospitals, and a private run that tests of privacy look at."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.helpers.command import BUDGET, FILES, cofactor

from cofactor.data import synthetic


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three clients of different size, bits of them too, and one private run that tests may copy, not change."""
    folder = tmp_path_factory.mktemp("private")
    for name, X in zip("abc", synthetic.blocks(3, [60, 90, 75], features=12, rank=3, seed=5).Xs):
        np.save(folder / f"{name}.npy", X)
        np.save(folder / f"{name}-bits.npy", (X > np.median(X)).astype(np.uint8))
    cofactor("fit", *FILES, "-k", 3, *BUDGET, "--out", "run", "-q", cwd=folder)
    return folder


@pytest.fixture
def copied(home: Path, tmp_path: Path) -> Path:
    """A copy of the private run that a test may change."""
    return Path(shutil.copytree(home / "run", tmp_path / "run"))


@pytest.fixture(scope="session")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[np.ndarray]]:
    """Three clients in three formats, one with its features in another order; and their rows."""
    folder = tmp_path_factory.mktemp("hospitals")
    Xs = synthetic.blocks(3, 50, features=24, rank=4, seed=5).Xs
    names = [f"gene{i}" for i in range(24)]
    pd.DataFrame(Xs[0], columns=names).to_csv(folder / "ann.csv", index=False)
    pd.DataFrame(Xs[1], columns=names).to_parquet(folder / "bob.parquet")
    pd.DataFrame(Xs[2][:, ::-1], columns=names[::-1]).to_csv(folder / "cyd.tsv", index=False, sep="\t")
    return folder, Xs
