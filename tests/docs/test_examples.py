"""The examples run, on small files that look like the stored datasets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from cofactor.data import synthetic

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of datasets: cells with types, and term counts in three windows."""
    planted = synthetic.lowrank(90, 30, 3, seed=0)
    names = np.array([f"g{i}" for i in range(30)])
    kinds = np.array(["a", "b", "c"])[planted.codes.argmax(axis=1)]
    np.savez(tmp_path / "scrna_hnsc_gse103322.npz", X=planted.X.astype(np.float32), genes=names, cell_type=kinds)
    X = sparse.csr_matrix(np.rint(5 * planted.X).astype(np.uint16))
    np.savez(
        tmp_path / "news_3windows.npz",
        format=b"csr",
        shape=X.shape,
        indptr=X.indptr,
        indices=X.indices,
        data=X.data,
        terms=names,
        window=np.repeat([0, 1, 2], 30),
        window_names=np.array(["first", "second", "third"]),
    )
    return tmp_path


@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [
        ("single_cell.py", ["scrna_hnsc_gse103322", "--hospitals", "3", "--rank", "3"], "program 2: g"),
        ("news.py", ["news_3windows", "--rank", "3"], "clients first, second, third"),
    ],
)
def test_an_example_runs(script: str, arguments: list[str], expected: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script), *arguments],
        env=os.environ | {"COFACTOR_DATA": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
