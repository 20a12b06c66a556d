"""Do clients mix? iLISI and cLISI of real cells with a planted batch effect, with and without own parts.

    COFACTOR_DATA=... python benchmarks/mixing.py

Cells of two stored studies are dealt to four labs, and each lab shifts all programs (those of scikit-learn's NMF of all
cells) by .8 times random patterns of the same law: the same programs with their genes in another order. Types of cells
are held back: no fit sees them. iLISI counts the labs around a cell (4 is best), cLISI the types (1 is best); codes are
at norm 1. Means over three seeds.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.decomposition import NMF

from cofactor import FederatedNMF
from cofactor.data import datasets
from cofactor.select.mixing import lisi

LABS, EFFECT, RANK, SEEDS, CELLS = 4, 0.8, 10, 3, 1500
STUDIES = ("scrna_pbmc68k_reduced", "scrna_hnsc_gse103322")


def study(name: str, seed: int) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Return the labs' cells without and with the effect, and the types in the order of the labs."""
    rng, held = np.random.default_rng(seed), datasets.load(name)
    X = held.X.toarray() if hasattr(held.X, "toarray") else held.X
    X = X if X.max() < 50 else np.log1p(X)
    rows = rng.permutation(len(X))[:CELLS]
    parts = np.array_split(rows, LABS)
    model = NMF(RANK, init="nndsvda", random_state=0, max_iter=500)
    W = model.fit_transform(X[rows].astype(np.float64))
    codes = np.array_split(W, LABS)
    shifts = [np.array([rng.permutation(h) for h in model.components_]) for _ in parts]
    clean = [X[part].astype(np.float64) for part in parts]
    return clean, [A + EFFECT * V @ P for A, V, P in zip(clean, codes, shifts, strict=True)], held.labels[rows]


def scores(Xs: list[np.ndarray], types: np.ndarray, seed: int, **options: object) -> tuple[float, float]:
    """Return mean iLISI and cLISI of the codes of a fit."""
    codes = np.vstack(FederatedNMF(RANK, random_state=seed, **options).fit(Xs).codes_)
    codes /= np.maximum(np.linalg.norm(codes, axis=1, keepdims=True), 1e-12)
    labs = np.repeat(np.arange(LABS), [len(X) for X in Xs])
    return float(lisi(codes, labs).mean()), float(lisi(codes, types).mean())


def main() -> None:
    for name in STUDIES:
        found: dict[str, list[tuple[float, float]]] = {}
        for seed in range(SEEDS):
            clean, shifted, types = study(name, seed)
            tries = {"no effect, exact": (clean, {}), "effect, exact": (shifted, {})}
            tries["effect, shared-own"] = (shifted, {"method": "shared-own"})
            random = {"method": "shared-own", "options": {"start": "random"}}
            tries["effect, shared-own from a random start"] = (shifted, random)
            for what, (Xs, options) in tries.items():
                found.setdefault(what, []).append(scores(Xs, types, seed, **options))
        kinds = len(np.unique(types))
        for what, each in found.items():
            mixed, apart = np.mean(each, axis=0)
            print(f"{name}, {what}: iLISI {mixed:.2f} of {LABS}, cLISI {apart:.2f} of {kinds}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
