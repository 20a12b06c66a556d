"""An h5ad file that is larger than the memory of a fit: backed AnnData in Python, the same file on the command line.

Writes counts (CSR in float32, a tenth of the cells above 0) in pieces, fits each way in a process of its own, and
prints the most memory that the process took over what an import alone takes, next to the size of the file (Linux).

python benchmarks/big_anndata.py 2.9          # gigabytes
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
from anndata.io import sparse_dataset, write_elem
from scipy import sparse

GENES, DENSITY, PIECE, RANK, ROUNDS = 20_000, 0.1, 5_000, 10, 3
BYTES = 8  # of a stored cell: a value in float32 and its column
PEAK = "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0])"
WAYS = {
    "import alone": "import anndata; from cofactor import FederatedNMF",
    "fit(backed AnnData)": (
        "import anndata; from cofactor import FederatedNMF; "
        "cells = anndata.read_h5ad({path!r}, backed='r'); "
        f"FederatedNMF({RANK}, rounds={ROUNDS}, tol=0, prepare='library,log1p', random_state=0).fit([cells])"
    ),
    "cofactor fit": (
        "import sys; from cofactor.cli.app import app; "
        f"sys.argv[1:] = ['fit', {{path!r}}, '-k', '{RANK}', '--rounds', '{ROUNDS}', '--tol', '0', '--prepare', "
        "'library,log1p', '--out', {path!r} + '-run', '-q']; app(standalone_mode=False)"
    ),
}
"""What each process does."""


def write(path: Path, gigabytes: float) -> tuple[int, int]:
    """Write a file of about this size, in pieces; return its shape."""
    rng = np.random.default_rng(0)
    piece = sparse.random(PIECE, GENES, DENSITY, "csr", np.float32, random_state=rng)
    piece.data = rng.geometric(0.3, piece.nnz).astype(np.float32)
    pieces = max(1, round(gigabytes * 1e9 / (BYTES * piece.nnz)))
    with h5py.File(path, "w") as file:
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        write_elem(file, "obs", pd.DataFrame(index=[f"cell{i}" for i in range(PIECE * pieces)]))
        write_elem(file, "var", pd.DataFrame(index=[f"gene{i}" for i in range(GENES)]))
        write_elem(file, "X", piece)
        held = sparse_dataset(file["X"])
        for _ in range(pieces - 1):
            held.append(piece[rng.permutation(PIECE)])
    return PIECE * pieces, GENES


def main(gigabytes: float) -> None:
    """Print what each way takes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.h5ad"
        shape = write(path, gigabytes)
        size, base = path.stat().st_size / 1e6, 0.0
        print(f"{shape[0]} x {shape[1]}, {size:.0f} MB, rank {RANK}, {ROUNDS} rounds after library size and log1p")
        for name, code in WAYS.items():
            begun = time.perf_counter()
            words = [sys.executable, "-W", "ignore", "-c", f"{code.format(path=str(path))}\n{PEAK}"]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            peak = int(done.stdout.split()[-1]) / 1e3  # kilobytes
            base = base or peak
            over = f"{peak - base:.0f} MB over it, {(peak - base) / size:.2f} of the file" if peak > base else ""
            print(f"{name:20s} {peak:6.0f} MB, {time.perf_counter() - begun:5.0f} s  {over}", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 2.9)
