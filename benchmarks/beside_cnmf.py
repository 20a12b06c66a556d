"""Consensus over three clients beside cNMF's own output on the same pooled matrix.

    COFACTOR_DATA=... python benchmarks/beside_cnmf.py        (needs `pip install cnmf`)

cNMF (Kotliar et al. 2019, the authors' package) prepares single cells, factorizes them from many random starts and
takes the consensus. Its own prepared matrix is then cut into three clients, and `consensus` runs over them, alone and
followed by rounds of `exact`. Programs are matched one to one; the cosine of each pair is printed, and for scale that
of cNMF with itself from another seed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import anndata
import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from cofactor import FederatedNMF
from cofactor.local.stats import normalize

RANK, STARTS, GENES = 10, 50, 500
ROUNDS = (10, 30)


def cells() -> anndata.AnnData:
    path = Path(os.environ["COFACTOR_DATA"]) / "scrna_pbmc68k_reduced.npz"
    with np.load(path) as stored:
        genes = stored["genes"].astype(str)
    X = sparse.load_npz(path).tocsr()
    counts = X.copy()
    counts.data = np.rint(np.expm1(X.data))  # counts of about the size that was log-normalized
    there = np.asarray(counts.sum(axis=0)).ravel() > 0
    counts, kept = counts[:, there], genes[there]
    found = anndata.AnnData(counts.astype(np.float32))
    found.var_names, found.obs_names = kept, [f"cell{i}" for i in range(counts.shape[0])]
    return found


def theirs(adata: anndata.AnnData, folder: Path, seed: int) -> tuple[np.ndarray, np.ndarray]:
    from cnmf import cNMF

    adata.write_h5ad(folder / "counts.h5ad")
    model = cNMF(output_dir=str(folder), name=f"run{seed}")
    model.prepare(str(folder / "counts.h5ad"), components=[RANK], n_iter=STARTS, seed=seed, num_highvar_genes=GENES)
    model.factorize(worker_i=0, total_workers=1)
    model.combine()
    model.consensus(RANK, density_threshold=0.5, show_clustering=False, close_clustergram_fig=True)
    spectra = model.paths["consensus_spectra"] % (RANK, "0_5")
    with np.load(spectra, allow_pickle=True) as stored:
        H = np.asarray(stored["data"], dtype=float)
    X = anndata.read_h5ad(model.paths["normalized_counts"]).X
    return normalize(H), np.asarray(X.todense() if sparse.issparse(X) else X)


def cosines(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    similar = normalize(A) @ normalize(B).T
    rows, columns = linear_sum_assignment(-similar)
    return np.sort(similar[rows, columns])[::-1]


def main() -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        H, X = theirs(cells(), Path(folder), 1)
        middle = time.process_time()
        order = np.random.default_rng(0).permutation(len(X))
        clients = [X[part] for part in np.array_split(order, 3)]
        model = FederatedNMF(RANK, method="consensus", random_state=1, options={"starts": STARTS}).fit(clients)
        settled = [
            FederatedNMF(RANK, init="custom", rounds=rounds, tol=0).fit(clients, H=model.components_)
            for rounds in ROUNDS
        ]
        ended = time.process_time()
        options = {"starts": STARTS, "local_rank": RANK}
        narrow = FederatedNMF(RANK, method="consensus", random_state=1, options=options).fit(clients)
        other, _ = theirs(cells(), Path(folder), 2)
    print(f"{X.shape[0]} cells, {X.shape[1]} genes, rank {RANK}, {STARTS} starts")
    print("consensus of 3 clients with cNMF:", np.round(cosines(model.components_, H), 3))
    for rounds, then in zip(ROUNDS, settled, strict=True):
        print(f"then {rounds} rounds of exact:", np.round(cosines(then.components_, H), 3))
    print(f"local_rank {RANK} instead of {3 * RANK}:", np.round(cosines(narrow.components_, H), 3))
    print("cNMF with itself, another seed:  ", np.round(cosines(other, H), 3))
    print(f"CPU seconds: cNMF {middle - begun:.0f}, consensus {ended - middle:.0f}")


if __name__ == "__main__":
    sys.exit(main())
