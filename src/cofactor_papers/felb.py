"""FELB ("Federated binary matrix factorization using proximal optimization"): its figures on tiles and on real data."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy import sparse

from cofactor import boolean
from cofactor.data import binarize, datasets, partition, synthetic
from cofactor.engines.loop import run
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan
from cofactor.privacy.allowance import Privacy
from cofactor.reproduce.drawn import pictures
from cofactor.types import Array, Data
from cofactor_papers import felb_noise

Cell = dict[str, Any]
RELAXED = ("felb", "falb")
MECHANISMS: dict[str, Any] = {
    "N": felb_noise.PaperGaussian,
    "N clipped": lambda e, s: felb_noise.PaperGaussian(e, s, clipped=True),
    "Lap": felb_noise.PaperLaplace,
    "Lap clipped": lambda e, s: felb_noise.PaperLaplace(e, s, clipped=True),
    "XOR": felb_noise.PaperXor,
}


def made(cell: Cell) -> Any:
    """Return the method of a cell; ``printed`` matches nothing and starts every client at a factor of its own."""
    spec, options = cell["spec"], dict(cell["spec"].get("options", {}))
    name = spec.get("name", cell["method"])
    if name in RELAXED or spec.get("relaxed"):
        options["rounds"] = cell["rounds"]
    if spec.get("printed"):
        options["align"] = None
        options |= {"common_start": False} if name in RELAXED else {"aggregate": cell.get("aggregate", "vote")}
    return catalog.make(name, cell["rank"], **options)


def measured(cell: Cell, Xs: list[Data], method: Any = None) -> dict[str, Any]:
    """Run the method of a cell: loss, recall and similarity after a greedy refit, and CPU seconds of a client."""
    begin = time.process_time()
    result = run(method or made(cell), Xs, rounds=cell["rounds"], seed=cell["seed"])
    seconds = (time.process_time() - begin) / len(Xs)
    return _scores(_tally(Xs, result.codes, result.factor), seconds)


def _scores(tally: boolean.Tally, seconds: float) -> dict[str, Any]:
    return {"loss": tally.loss, "recall": tally.recall, "similarity": tally.similarity, "seconds": seconds}


def _tally(Xs: list[Data], codes: list[Array], H: Array) -> boolean.Tally:
    return sum((boolean.tally(X, W, H) for X, W in zip(Xs, codes, strict=True)), boolean.Tally())


def planted(cell: Cell, rows: int) -> tuple[list[Data], float]:
    """Tiles dealt out to the clients, and the loss of the planted factor."""
    data = synthetic.tiles(rows, cell["features"], cell["rank"], noise=cell["noise"], seed=cell["seed"])
    X = data.X.astype(np.float32)
    parts = partition.iid(rows, cell["clients"], seed=cell["seed"])
    best = boolean.loss(X, boolean.greedy_refit(X, data.factor), data.factor)
    return [X[part] for part in parts], best


def noise(cell: Cell) -> dict[str, Any]:
    """Figures 2, 7 and 8: destructive XOR noise; ``over`` is the loss beyond that of the planted factor."""
    Xs, best = planted(cell, cell["rows"])
    found = measured(cell, Xs)
    return {**found, "over": found["loss"] - best}


def clients(cell: Cell) -> dict[str, Any]:
    """Figures 3, 4 and 9 to 12: a fixed number of rows dealt out (scarcity), or rows for each client (abundance)."""
    total = cell["total"] if cell["setting"] == "scarcity" else cell["rows"] * cell["clients"]
    Xs, best = planted(cell, total)
    found = measured(cell, Xs)
    return {**found, "over": found["loss"] - best}


def privacy(cell: Cell) -> dict[str, Any]:
    """Figures 5, 13 and 14: the paper's noise on uploads, its epsilon of one upload and the sum over all of them."""
    Xs, best = planted(cell, cell["rows"])
    if cell["spec"].get("private"):
        found = cut(cell, Xs)
        return {**found, "over": found["loss"] - best, "total": cell["epsilon"]}
    most = max(int(X.sum(axis=1).max()) for X in Xs)
    sensitivity = float(most if cell["sensitivity"] == "most ones" else cell["features"])
    method = made(cell)
    noisy = felb_noise.PaperNoise(method, MECHANISMS[cell["mechanism"]](cell["epsilon"], sensitivity))
    uploads = cell["rounds"] if cell["spec"].get("name", cell["method"]) in RELAXED else 1
    found = measured(cell, Xs, noisy)
    return {**found, "over": found["loss"] - best, "total": uploads * cell["epsilon"]}


def cut(cell: Cell, Xs: list[Data]) -> dict[str, Any]:
    """A private method for real data, with the epsilon of the axis for all its releases together, on rows of bits.

    Its components are cut at half of their largest value, which reads nothing but what was released.
    """
    begin = time.process_time()
    plan = Plan(privacy=Privacy(cell["epsilon"], 0.05 / cell["rows"]), secure=True, seed=cell["seed"])
    facts = Facts(len(Xs), cell["features"], cell["rows"])
    method, plan = build(cell["method"], cell["rank"], plan, facts)
    H = run(method, Xs, plan).factor
    bits = (H >= 0.5 * H.max(axis=1, keepdims=True)).astype(np.float32)
    codes = [boolean.greedy_refit(X, bits) for X in Xs]
    seconds = (time.process_time() - begin) / len(Xs)
    return _scores(_tally(Xs, codes, bits), seconds)


def real(cell: Cell) -> dict[str, Any]:
    """Figures 6, 15, 16 and 17: real data, rows dealt out at random."""
    X = bits(cell["data"])
    drawn = np.random.default_rng(cell["seed"]).permutation(X.shape[0])[: cell["data_rows"]]
    parts = np.array_split(drawn, cell["clients"])
    return measured(cell, [X[np.sort(part)] for part in parts])


def bits(name: str) -> Data:
    """Return stored data as zeros and ones (float32); of ratings those from 3.5 on, for films that have 30."""
    X = datasets.load(name).X
    if name == "movielens_latest_small":
        X = binarize.threshold(X, 3.5)
        X = X[:, np.flatnonzero(np.asarray(X.sum(axis=0)).ravel() >= 30)]
    found = X > 0
    return sparse.csr_array(found, dtype=np.float32) if sparse.issparse(found) else np.asarray(found, np.float32)


def toy(cell: Cell) -> dict[str, Any]:
    """Figure 1: what three clients hold, and its reconstruction; rows and columns in the order of the planted tiles."""
    rows, c = cell["rows"], cell["clients"]
    data = synthetic.tiles(rows, cell["features"], cell["rank"], noise=cell["noise"], seed=cell["seed"])
    parts = partition.iid(rows, c, seed=cell["seed"])
    Xs = [data.X[part].astype(np.float32) for part in parts]
    result = run(made(cell), Xs, rounds=cell["rounds"], seed=cell["seed"])
    across = np.lexsort(data.factor)
    shown = []
    for part, X, W in zip(parts, Xs, result.codes, strict=True):
        picture = X if cell["spec"].get("data") else boolean.unpack(boolean.product(W, result.factor))
        shown.append(np.asarray(picture, float)[np.lexsort(data.codes[part].T)][:, across])
    side = min(map(len, shown))
    loss = _tally(Xs, result.codes, result.factor).loss
    return {"loss": loss, "pictures": pictures(np.stack([picture[-side:] for picture in shown]))}
