"""Gene programs of a stored single-cell dataset, its cells spread over hospitals with different mixes of cell types.

COFACTOR_DATA=FOLDER python examples/single_cell.py scrna_pbmc68k_reduced --hospitals 4 --rank 10
"""

from __future__ import annotations

import argparse

import numpy as np

from cofactor import FederatedNMF
from cofactor.data import datasets, partition


def main() -> None:
    """Load, split, fit, print the top genes of every program and the cell types that use it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", default="scrna_pbmc68k_reduced")
    parser.add_argument("--hospitals", type=int, default=4)
    parser.add_argument("--rank", type=int, default=10)
    options = parser.parse_args()

    cells = datasets.load(options.name)
    X = np.log1p(cells.X) if options.name == "scrna_hnsc_gse103322" else cells.X
    parts = partition.dirichlet(cells.labels, options.hospitals, alpha=0.3, seed=0)
    hospitals = partition.split(X, parts)
    print(f"{options.name}: hospitals with {', '.join(str(len(part)) for part in parts)} cells")

    model = FederatedNMF(options.rank, rounds=200, random_state=0).fit(hospitals)
    print(f"relative error {model.reconstruction_err_:.3f} after {model.n_rounds_} rounds")
    codes, types = np.vstack(model.codes_), cells.labels[np.concatenate(parts)]
    for i, component in enumerate(model.components_):
        genes = cells.feature_names[np.argsort(-component)[:6]]
        users = {kind: codes[types == kind, i].mean() for kind in np.unique(types)}
        print(f"program {i}: {' '.join(genes)}; most used by {max(users, key=users.get)}")


if __name__ == "__main__":
    main()
